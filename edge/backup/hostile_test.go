package backup

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/keyfile"
)

// An evil is an entry of a hostile archive.
type evil struct {
	name string
	kind byte
	data string
	size int64
}

// build returns an archive with a manifest, a database and other entries.
func build(t testing.TB, m string, db []byte, more ...evil) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	all := append([]evil{{name: manifestName, data: m}, {name: stateDir + databaseName, data: string(db)}}, more...)
	for _, e := range append(all, evil{name: endName}) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o4755, Size: int64(len(e.data))}
		if e.kind != 0 {
			h.Typeflag, h.Linkname = e.kind, "/etc/passwd"
		}
		if e.size > 0 {
			h.Size = e.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
		if e.size > 0 {
			return out.Bytes()
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostile restores hostile archives. Each one is an error, and changes nothing.
func TestHostile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	whole := w.archive(w.source())
	db, err := os.ReadFile(filepath.Join(w.dirs.State, databaseName))
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(more string) string {
		return fmt.Sprintf(`{"format":1,"version":"1","node":"edge","state":%q,"cert":%q%s}`, w.dirs.State, w.dirs.Cert, more)
	}
	plain := manifest("")
	armed := arm(t, db)
	var many []evil
	for i := range maxEntries {
		many = append(many, evil{name: fmt.Sprintf("state/%d.json", i)})
	}
	archives := map[string][]byte{
		"empty":              nil,
		"no tar":             bytes.Repeat([]byte("islet"), 1000),
		"without an end":     whole[:len(whole)-3*512],
		"no manifest":        build(t, plain, db)[1024:],
		"two manifests":      build(t, plain, db, evil{name: manifestName, data: plain}),
		"no JSON":            build(t, "{", db),
		"a later format":     build(t, `{"format":2,"version":"9.0.0"}`, db),
		"no node":            build(t, `{"format":1}`, db),
		"a node's escape":    build(t, `{"format":1,"node":"a\u001b[2J"}`, db),
		"no database":        build(t, plain, nil),
		"another database":   build(t, plain, []byte("SQLite format 3\x00 and so on")),
		"a database's half":  build(t, plain, db[:len(db)/2]),
		"up":                 build(t, plain, db, evil{name: "state/../../etc/shadow"}),
		"up from files":      build(t, plain, db, evil{name: "files/etc/islet/../shadow"}),
		"absolute":           build(t, plain, db, evil{name: "/etc/islet/edge.yaml"}),
		"outside":            build(t, plain, db, evil{name: "files/usr/local/bin/islet", data: "x"}),
		"the root":           build(t, plain, db, evil{name: "files", data: "x"}),
		"into the state":     build(t, plain, db, evil{name: "files" + w.dirs.State + "/runtime/x", data: "x"}),
		"another state file": build(t, plain, db, evil{name: "state/lock", data: "x"}),
		"the journal":        build(t, plain, db, evil{name: "state/" + journalName, data: "{}"}),
		"an unfinished join": build(t, plain, db, evil{name: "state/k3s/a/unfinished.json", data: `[{"path":"/etc/cron.d/x","new":"eA=="}]`}),
		"deep in bundles":    build(t, plain, db, evil{name: "state/bundles/a/b/c", data: "x"}),
		"a hidden bundle":    build(t, plain, db, evil{name: "state/bundles/.a/contents.json", data: "x"}),
		"below certificates": build(t, plain, db, evil{name: "cert/a/b.pem", data: "x"}),
		"twice":              build(t, plain, db, evil{name: "cert/a.pem", data: "x"}, evil{name: "cert/a.pem", data: "y"}),
		"one path twice":     build(t, plain, db, evil{name: "cert/a.pem", data: "x"}, evil{name: "files" + w.dirs.Cert + "/a.pem", data: "y"}),
		"a file and below":   build(t, plain, db, evil{name: "files" + w.root + "/conf/a", data: "x"}, evil{name: "files" + w.root + "/conf/a/b", data: "y"}),
		"a symbolic link":    build(t, plain, db, evil{name: "cert/a.pem", kind: tar.TypeSymlink}),
		"a hard link":        build(t, plain, db, evil{name: "cert/a.pem", kind: tar.TypeLink}),
		"a device":           build(t, plain, db, evil{name: "cert/a.pem", kind: tar.TypeChar}),
		"a directory":        build(t, plain, db, evil{name: "state/bundles", kind: tar.TypeDir}),
		"a wrong link":       build(t, manifest(`,"links":{"a.pem":"../../etc/shadow"}`), db),
		"a link to nothing":  build(t, manifest(`,"links":{"a.pem":"b.pem"}`), db),
		"a large file":       build(t, plain, db, evil{name: "cert/a.pem", size: maxFile + 1}),
		"a huge database":    build(t, plain, nil, evil{name: "state/" + databaseName, size: maxDatabase + 1}),
		"many files":         build(t, plain, db, many...),
		"another key": build(t, manifest(`,"recipient":"age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq"`), db,
			evil{name: "state/store.key", data: strings.Repeat("k", keyfile.Size)}),
		"a missing key":        build(t, manifest(`,"recipient":"age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq"`), db),
		"a missing sealed key": build(t, manifest(`,"sealed":true`), db),
		"a trigger":            build(t, plain, armed),
		"a broken key":         build(t, plain, db, evil{name: "state/store.key", data: "short"}),
		"a long tail":          append(build(t, plain, db), make([]byte, maxTail+1)...),
		"a large list":         build(t, manifest(`,"omitted":[""`+strings.Repeat(`,""`, maxListed)+"]"), db),
		"a large map": build(t, manifest(`,"bundles":{"a":1`+func() (s string) {
			for i := range 20_000 {
				s += fmt.Sprintf(`,"%d":1`, i)
			}
			return s
		}()+"}"), db),
		"a control name":  build(t, plain, db, evil{name: "cert/a\nb.pem", data: "x"}),
		"a long name":     build(t, plain, db, evil{name: "files/" + strings.Repeat("/a", maxName), data: "x"}),
		"without a state": build(t, `{"format":1,"node":"edge","state":"/","cert":"/"}`, db),
	}
	w.empty()
	q := w.request()
	q.Include = []string{filepath.Join(w.root, "conf")}
	q.Dirs.Root = filepath.Join(w.root, "conf")
	for name, data := range archives {
		if _, err := Restore(t.Context(), bytes.NewReader(data), q); err == nil {
			t.Errorf("%s: was restored", name)
		}
		if now := w.files(); len(now) > 0 {
			t.Fatalf("%s: the board has changed: %q", name, slices.Sorted(maps.Keys(now)))
		}
	}
	if _, err := Restore(t.Context(), bytes.NewReader(build(t, plain, db, evil{name: "cert/a.pem", data: "x"})), q); err != nil {
		t.Error("the archive without a fault:", err)
	}
	if fi, err := os.Stat(w.dirs.Cert + "/a.pem"); err != nil || fi.Mode() != 0o600 {
		t.Errorf("the mode of a hostile archive: %v, %v", fi.Mode(), err)
	}
}

// FuzzRead changes bytes of an archive. read accepts only names that checkName permits, and never more bytes than its limit.
func FuzzRead(f *testing.F) {
	f.Add(build(f, `{"format":1,"node":"edge"}`, []byte("db"), evil{name: "cert/a.pem", data: "x"}, evil{name: "files/etc/islet/a", data: "y"}))
	f.Add(build(f, `{"format":1,"node":"edge","links":{"a":"b"}}`, []byte("db"), evil{name: "state/store.key", data: "x"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		seen, total := map[string]bool{}, int64(0)
		err := read(bytes.NewReader(data), func(m *Manifest) error { return m.validate() }, func(e entry, content io.Reader) error {
			n, err := io.Copy(io.Discard, content)
			total += n
			if seen[e.name] || checkName(e.name) != nil || n > limitOf(e.name) || e.mode&^modeMask != 0 {
				t.Errorf("%q of %d bytes was accepted", e.name, n)
			}
			seen[e.name] = true
			return err
		})
		if err == nil && total > maxTotal {
			t.Errorf("%d bytes", total)
		}
	})
}
