package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// A world is a directory that stands for the root of a board.
type world struct {
	*testing.T
	root string
	dirs config.Dirs
	cfg  *config.Config
}

// newWorld returns a node with a database, a key, certificates and configuration files. Its agent does not run.
func newWorld(t *testing.T) *world {
	t.Helper()
	root := t.TempDir()
	w := &world{T: t, root: root, dirs: config.Dirs{State: root + "/state", Cert: root + "/kubelet/pki", Root: root + "/kubelet", Run: root + "/run"}}
	w.cfg = &config.Config{Dirs: w.dirs, Kubeconfig: root + "/conf/kubelet.conf"}
	w.cfg.Node.Name = "edge"
	w.write("state/bundle.json", `{"format":1,"highest":{"kiosk":7}}`)
	w.write("state/configuration.json", `{}`)
	w.write("state/bundles/sha256-ab/contents.json", `{}`)
	w.write("state/bundles/sha256-ab/files/pod.yaml", "kind: Pod")
	w.write("kubelet/pki/kubelet-client-2026-11-21-03-50-00.pem", "pair")
	w.write("conf/kubelet.conf", "users: [{name: u, user: {client-key: key.pem, tokenFile: /nowhere}}]")
	w.write("conf/key.pem", "key")
	if err := os.Symlink(w.dirs.Cert+"/kubelet-client-2026-11-21-03-50-00.pem", w.dirs.Cert+"/kubelet-client-current.pem"); err != nil {
		t.Fatal(err)
	}
	s := w.store()
	record := `{"node":"edge","marks":{"serials":["0123456789"]},"term":3}`
	if err := errors.Join(s.SetMeta(t.Context(), twin.MetaKey, record), s.SetMeta(t.Context(), seenKey, `{"highest":{"kiosk":6,"shop":2}}`),
		s.AddImport(t.Context(), "sha256:ab", "a.tar")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MakeRecipient(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) store() *store.Store {
	w.Helper()
	s, err := store.Open(w.Context(), filepath.Join(w.dirs.State, databaseName), slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) write(path, content string) {
	w.Helper()
	path = filepath.Join(w.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o640)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) source() Source {
	return Source{
		Config: w.cfg, Version: "1.2.3", Now: func() time.Time { return noon }, Scratch: w.dirs.State,
		Copy: store.CopyFileFrom(filepath.Join(w.dirs.State, databaseName)),
		Recipient: func() string {
			key, err := keyfile.Place{Dir: w.dirs.State}.Read()
			if err != nil {
				w.Fatal(err)
			}
			id, err := key.Identity()
			if err != nil {
				w.Fatal(err)
			}
			return id.Recipient()
		},
	}
}

func (w *world) archive(s Source) []byte {
	w.Helper()
	a, err := s.Collect(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var out bytes.Buffer
	if err := errors.Join(a.Write(w.Context(), &out), a.Close()); err != nil {
		w.Fatal(err)
	}
	return out.Bytes()
}

// empty replaces the board by one without files.
func (w *world) empty() {
	w.Helper()
	if err := errors.Join(os.RemoveAll(w.root), os.MkdirAll(w.dirs.State, 0o700)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) request() Request {
	return Request{Dirs: w.dirs, Start: w.startAs(w.dirs, "edge"), Include: []string{w.root}, Now: func() time.Time { return noon }, TPM: w.root + "/no-tpm"}
}

// startAs returns an agent that runs as a node, whatever files the board has.
func (w *world) startAs(dirs config.Dirs, node string) func(fs.FS) ([]Identity, error) {
	return func(fs.FS) ([]Identity, error) { return []Identity{{dirs, node}}, nil }
}

// files returns the content of all files and links by path.
func (w *world) files() map[string]string {
	w.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(w.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, w.root+"/")
		if e.Type() == fs.ModeSymlink {
			out[name], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		out[name] = string(data)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) meta(key string) string {
	w.Helper()
	text, _, err := store.ReadMeta(w.Context(), filepath.Join(w.dirs.State, databaseName), key)
	if err != nil {
		w.Fatal(err)
	}
	return text
}

// TestRestore backs a node up and restores it on an empty board. The new board has the same files. Its database knows that the board is
// another one, has the highest numbers of both memories, and does not count images as imported.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, bundles := range []bool{false, true} {
		w := newWorld(t)
		before := w.files()
		s := w.source()
		s.Bundles = bundles
		data := w.archive(s)
		if left := w.files(); !maps.Equal(left, before) {
			t.Fatalf("the backup has changed files: %q", slices.Sorted(maps.Keys(left)))
		}
		w.empty()
		res, err := Restore(t.Context(), bytes.NewReader(data), w.request())
		if err != nil {
			t.Fatal(err)
		}
		now := w.files()
		for name, content := range before {
			if isBundle := strings.Contains(name, "bundle"); isBundle && !bundles {
				if _, ok := now[name]; ok {
					t.Errorf("%s is in the backup", name)
				}
			} else if filepath.Base(name) != databaseName && now[name] != content {
				t.Errorf("%s: %q instead of %q", name, now[name], content)
			}
		}
		if len(now) > len(before) || res.Aside != "" || res.PlainKey {
			t.Errorf("%+v: %q", res, slices.Sorted(maps.Keys(now)))
		}
		if got := w.meta(twin.MetaKey); got != `{"node":"edge","marks":{},"term":3,"restored":true}` {
			t.Errorf("the record of the machine: %s", got)
		}
		if got := w.meta(seenKey); got != `{"highest":{"kiosk":7,"shop":2}}` {
			t.Errorf("the highest numbers: %s", got)
		}
		st := w.store()
		if done, err := st.WasImported(t.Context(), "sha256:ab"); err != nil || done {
			t.Errorf("an archive counts as imported: %v, %v", done, err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		for name, mode := range map[string]fs.FileMode{"state/store.key": 0o600, "state/islet.db": 0o600, "conf/kubelet.conf": 0o640} {
			if fi, err := os.Stat(filepath.Join(w.root, name)); err != nil || fi.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, fi.Mode(), err)
			}
		}
	}
}

// TestRefused restores backups on boards that they do not fit. Nothing changes.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data := w.archive(w.source())
	for name, c := range map[string]struct {
		change func(*Request)
		says   string
	}{
		"another name":      {func(q *Request) { q.Start = w.startAs(w.dirs, "other") }, "hostnamectl set-hostname edge"},
		"another directory": {func(q *Request) { q.Dirs.Cert = "/elsewhere" }, "--cert-dir=" + w.dirs.Cert},
		"another service":   {func(q *Request) { q.Start = w.startAs(config.Dirs{State: "/x", Cert: w.dirs.Cert}, "edge") }, "--state-dir"},
		"wrong flags": {func(q *Request) {
			q.Start = func(fs.FS) ([]Identity, error) { return nil, errors.New("unknown flag") }
		}, "unknown flag"},
		"a file outside":  {func(q *Request) { q.Include = nil }, "--include=PATH"},
		"files of a node": {func(q *Request) { w.write("state/store.key", "x") }, "--set-aside"},
		"a certificate":   {func(q *Request) { w.write("kubelet/pki/kubelet-server-x.pem", "x") }, "--set-aside"},
		"a long name": {func(q *Request) {
			w.write("kubelet/pki/kubelet-"+strings.Repeat("x", 240)+".pem", "x")
			q.SetAside = true
		}, "too long a name"},
		"a file for a directory": {func(q *Request) { w.write("conf", "x") }, "is not a directory"},
		"another configuration":  {func(q *Request) { w.write("conf/kubelet.conf", "x") }, "--set-aside"},
		"running pods":           {func(q *Request) { w.write("state/runtime/sandboxes/x/record", "x") }, "islet cleanup"},
		"an older restore's own": {func(q *Request) {
			w.write("state/.store.key.before-restore-20261128T120000Z", "x")
			w.write("state/store.key", "x")
			q.SetAside = true
		}, "move it away"},
	} {
		w.empty()
		q := w.request()
		c.change(&q)
		before := w.files()
		if _, err := Restore(t.Context(), bytes.NewReader(data), q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if now := w.files(); !maps.Equal(now, before) {
			t.Errorf("%s: the board has changed: %q", name, slices.Sorted(maps.Keys(now)))
		}
	}
}

// TestSetAside restores a backup over another node. Its files get other names, and the restored node has its higher numbers.
func TestSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data := w.archive(w.source())
	w.write("state/bundle.json", `{"format":1,"highest":{"kiosk":9}}`)
	w.write("state/store.key", "another key")
	w.write("kubelet/pki/kubelet-server-current.pem", "its certificate")
	w.write("conf/kubelet.conf", "its kubeconfig")
	before := w.files()
	q := w.request()
	q.SetAside, q.Highest = true, map[string]int64{"shop": 5}
	res, err := Restore(t.Context(), bytes.NewReader(data), q)
	if err != nil {
		t.Fatal(err)
	}
	now := w.files()
	for _, name := range []string{"state/bundle.json", "state/store.key", "state/islet.db", "state/bundles/sha256-ab/contents.json",
		"kubelet/pki/kubelet-server-current.pem", "kubelet/pki/kubelet-client-current.pem", "conf/kubelet.conf"} {
		aside := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+res.Aside)
		if strings.Contains(name, "/bundles/") {
			aside = "state/.bundles" + res.Aside + strings.TrimPrefix(name, "state/bundles")
		}
		if content, ok := now[aside]; !ok || content != before[name] {
			t.Errorf("%s is not at %s: %q", name, aside, content)
		}
	}
	if now["conf/key.pem"] != "key" || now["conf/.key.pem"+res.Aside] != "" {
		t.Error("a file with the same content was set aside")
	}
	if got := w.meta(seenKey); got != `{"highest":{"kiosk":9,"shop":5}}` {
		t.Errorf("the highest numbers: %s", got)
	}
	if _, ok := now["kubelet/pki/kubelet-server-current.pem"]; ok {
		t.Error("a certificate of the other node is left")
	}
}

// TestPowerCuts ends a restore at each step, also a restore over another node, and the recovery too. The recovery leaves either the board
// as it was or the whole node.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]bool{"an empty board": false, "over another node": true} {
		var whole map[string]string
		var recovered []map[string]string
		for cut := 1; ; cut++ {
			w := newWorld(t)
			w.write("state/update/index.json", "{}")
			w.write("state/k3s/a/client-kubelet.pem", "pair")
			if err := os.Symlink("a", w.dirs.State+"/k3s/current"); err != nil {
				t.Fatal(err)
			}
			s := w.source()
			s.Bundles = true
			data := w.archive(s)
			if !over {
				w.empty()
			} else {
				w.write("state/store.key", "another key")
			}
			before := w.files()
			steps, decided := 0, false
			crash := func(step string) error {
				if step == "decided" {
					decided = true
				}
				if steps++; steps == cut {
					return errCrash
				}
				return nil
			}
			q := w.request()
			q.SetAside, q.crash = over, crash
			_, err := Restore(t.Context(), bytes.NewReader(data), q)
			if err != nil && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			for more := cut + 1; Pending(w.dirs.State); more += 2 { // the recovery is cut, too
				cut, again := more, 0
				rerr := recoverDirs(w.dirs.State, func(string) error {
					if again++; again == cut {
						return errCrash
					}
					return nil
				})
				if rerr != nil && !errors.Is(rerr, errCrash) {
					t.Fatal(rerr)
				}
			}
			now := w.files()
			delete(now, "state/islet.db") // its bytes differ from run to run
			delete(before, "state/islet.db")
			keys := func(m map[string]string) string {
				return strings.ReplaceAll(fmt.Sprint(slices.Sorted(maps.Keys(m))), w.root, "")
			}
			switch {
			case !decided && !maps.Equal(now, before):
				t.Errorf("%s: after a cut at step %d the board has changed: %s", name, cut, keys(now))
			case err == nil:
				whole = now
			}
			if err == nil {
				if cut < 6 || steps < 10 {
					t.Errorf("%s: %d steps", name, steps)
				}
				break
			}
			if decided {
				if w.meta(twin.MetaKey) == "" || now["state/store.key"] == "another key" {
					t.Errorf("%s: after a cut at step %d the node is not whole: %s", name, cut, keys(now))
				}
				recovered = append(recovered, now)
			}
		}
		if len(whole) == 0 {
			t.Errorf("%s: no restore was complete", name)
		}
		for i, now := range recovered {
			if !slices.Equal(slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(whole))) {
				t.Errorf("%s: recovery %d: %q instead of %q", name, i, slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(whole)))
			}
		}
	}
}

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

// TestCopy checks that Copy returns the same archive, and an error for an incomplete one at each length.
func TestCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data := w.archive(w.source())
	var out bytes.Buffer
	s, err := Copy(&out, bytes.NewReader(data))
	if err != nil || s.Manifest.Node != "edge" || s.Database == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := Copy(io.Discard, bytes.NewReader(out.Bytes())); err != nil {
		t.Error("the copy:", err)
	}
	for n := 0; n < len(data)-3*512; n += 997 {
		if _, err := Copy(io.Discard, bytes.NewReader(data[:n])); err == nil {
			t.Errorf("%d of %d bytes are complete", n, len(data))
		}
	}
}

// TestBusy checks that a node is not backed up while a bundle is on trial, and that files which an archive cannot have are named.
func TestBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("conf/kubelet.conf", "users: [{name: u, user: {client-key: large.pem, tokenFile: /nowhere}}]")
	w.write("conf/large.pem", strings.Repeat("x", maxFile+1))
	s, err := Copy(io.Discard, bytes.NewReader(w.archive(w.source())))
	if err != nil || !slices.Equal(s.Manifest.Omitted, []string{w.root + "/conf/large.pem"}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, record := range []string{`{"format":1,"trial":{}}`, `{"format":1,"abandoned":"x"}`, "{"} {
		w.write("state/bundle.json", record)
		if _, err := w.source().Collect(t.Context()); err == nil {
			t.Errorf("%s was backed up", record)
		}
	}
}
