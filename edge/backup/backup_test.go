package backup

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/config"
)

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
		"the name in another directory": {func(q *Request) {
			q.Start = func(fs.FS) ([]Identity, error) {
				return []Identity{{config.Dirs{State: "/x", Cert: w.dirs.Cert}, "edge"}, {w.dirs, "other"}}, nil
			}
		}, "--state-dir"},
		"two other names": {func(q *Request) {
			q.Start = func(fs.FS) ([]Identity, error) { return []Identity{{w.dirs, "other"}, {config.Dirs{}, "host"}}, nil }
		}, "would be other or host: set its host name (hostnamectl set-hostname edge)"},
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
		"volumes of pods":        {func(q *Request) { w.write("kubelet/pods/uid/volumes/data", "x") }, "islet cleanup"},
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
	w.write("state/configuration.json.broken", "{")
	w.write("kubelet/pki/kubelet-server-current.pem", "its certificate")
	w.write("conf/kubelet.conf", "its kubeconfig")
	before := w.files()
	q := w.request()
	q.SetAside, q.Highest = true, map[string]int64{"shop": 5}
	q.DryRun = true
	dry, err := Restore(t.Context(), bytes.NewReader(data), q)
	if err != nil || dry.Aside != "" || len(dry.InTheWay) == 0 {
		t.Fatalf("a dry run: %+v, %v", dry, err)
	}
	q.DryRun = false
	res, err := Restore(t.Context(), bytes.NewReader(data), q)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.InTheWay, dry.InTheWay) {
		t.Errorf("set aside %v, the dry run has named %v", res.InTheWay, dry.InTheWay)
	}
	for _, path := range dry.InTheWay {
		if !exists(hiddenPath(path, res.Aside)) {
			t.Errorf("%s was not set aside", path)
		}
	}
	now := w.files()
	for name := range now {
		if base := filepath.Base(name); strings.HasSuffix(base, res.Aside) {
			path := filepath.Join(w.root, filepath.Dir(name), strings.TrimSuffix(base[1:], res.Aside))
			if !slices.Contains(dry.InTheWay, path) {
				t.Errorf("%s was set aside, and the dry run has not named it", path)
			}
		}
	}
	for _, name := range []string{"state/bundle.json", "state/store.key", "state/configuration.json.broken", "state/islet.db", "state/bundles/sha256-ab/contents.json",
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
