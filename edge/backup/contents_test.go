package backup

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/keyfile"
)

// arm adds a trigger to a database.
func arm(t *testing.T, db []byte) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, db, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ExecContext(t.Context(), "CREATE TRIGGER spy AFTER INSERT ON meta BEGIN DELETE FROM meta WHERE key = 'bundle.seen'; END")
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	armed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return armed
}

// TestOrigin checks that only an archive with the private key of a node counts as one of this node.
func TestOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	whole := w.archive(w.source())
	recipient := w.source().Recipient()
	s, err := Check(t.Context(), bytes.NewReader(whole))
	if err != nil || s.KeyProof != ProvenKey || s.Manifest.Recipient != recipient {
		t.Errorf("%+v, %v", s, err)
	}
	silent := w.source() // a board that cannot open its own key
	silent.Recipient = func() string { return "" }
	if s, err = Check(t.Context(), bytes.NewReader(w.archive(silent))); err != nil || s.Manifest.Recipient != recipient {
		t.Errorf("%+v, %v", s, err)
	}
	for name, key := range map[string]string{"another key": strings.Repeat("k", keyfile.Size), "no key": ""} {
		w.write("state/store.key", key)
		forged := w.source()
		forged.Recipient = func() string { return recipient }
		if key == "" {
			if err := os.Remove(filepath.Join(w.dirs.State, keyName)); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Check(t.Context(), bytes.NewReader(w.archive(forged)))
		if key != "" && err == nil || key == "" && (err != nil || s.KeyProof != NoKey || s.Manifest.Recipient != "") {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	w.write("state/store.key", strings.Repeat("x", 2*keyfile.Size))
	sealed := w.source()
	sealed.Recipient = func() string { return recipient }
	if s, err := Check(t.Context(), bytes.NewReader(w.archive(sealed))); err != nil || s.KeyProof != SealedKey {
		t.Errorf("a sealed key: %+v, %v", s, err)
	}
}

// TestNumbers restores over a node whose record of bundles is damaged. The numbers of its database apply. A bundle that has failed on the
// node of the backup stays a failed one.
func TestNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("state/bundle.json", `{"highest":{"kiosk":42},"failed":["sha256:42"],"current":{"name":"kiosk","number":41}}`)
	data := w.archive(w.source())
	if s, err := Check(t.Context(), bytes.NewReader(data)); err != nil || *s.Manifest.InUse != (bundleName{"kiosk", 41}) {
		t.Errorf("%+v, %v", s, err)
	}
	st := w.store()
	if err := errors.Join(st.SetMeta(t.Context(), seenKey, `{"highest":{"shop":9},"failed":["sha256:9"]}`), st.Close()); err != nil {
		t.Fatal(err)
	}
	w.write("state/bundle.json", "{")
	q := w.request()
	q.SetAside = true
	res, err := Restore(t.Context(), bytes.NewReader(data), q)
	if err != nil || res.Unread == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := w.meta(seenKey); got != `{"highest":{"kiosk":42,"shop":9},"failed":["sha256:42","sha256:9"]}` {
		t.Error(got)
	}
}

// TestRecords backs up the records of other packages, and the files of a k3s cluster. Its link leads to the restored files.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	large := strings.Repeat("x", maxFile+1)
	w.write("state/configuration.json", large)
	w.write("state/setup.json", "{}")
	w.write("state/update/index.json", "{}")
	w.write("state/k3s/a/token", "old")
	w.write("state/k3s/b/client-kubelet.pem", "pair")
	w.write("state/k3s/b/unfinished.json", "[]")
	w.write("state/k3s/b/cluster.json", `{"passwordFile":"`+w.root+`/rancher/password"}`)
	w.write("rancher/password", "secret")
	if err := os.Symlink("b", w.dirs.State+"/k3s/current"); err != nil {
		t.Fatal(err)
	}
	data := w.archive(w.source())
	for _, over := range []bool{false, true} {
		if !over {
			w.empty()
		}
		q := w.request()
		q.SetAside = over
		if _, err := Restore(t.Context(), bytes.NewReader(data), q); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"state/configuration.json": large, "state/setup.json": "{}", "state/update/index.json": "{}",
			"state/k3s/current/client-kubelet.pem": "pair", "rancher/password": "secret"} {
			if got, err := os.ReadFile(filepath.Join(w.root, name)); err != nil || string(got) != want {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
		for _, name := range []string{"token", "unfinished.json"} { // the first one is of the other directory
			if _, err := os.Lstat(w.dirs.State + "/k3s/current/" + name); err == nil {
				t.Errorf("%s of the cluster was restored", name)
			}
		}
	}
}

// TestHidden checks that hidden files of a named directory are in a backup, and that everything else which is left out is named. A
// directory that a restore makes is for root only.
func TestHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kubelet.StaticPodPath = w.root + "/manifests"
	w.write("manifests/.draft.yaml", "x")
	w.write("app/.env", "secret")
	w.write("app/sub/.git/config", "x")
	if err := os.Symlink("/etc", w.root+"/app/link"); err != nil {
		t.Fatal(err)
	}
	s := w.source()
	s.Include = []string{w.root + "/app", w.dirs.State + "/lock"}
	w.write("state/lock", "")
	data := w.archive(s)
	sum, err := Check(t.Context(), bytes.NewReader(data))
	want := []string{w.root + "/app/link", w.dirs.State + "/lock", w.root + "/manifests/.draft.yaml"}
	if err != nil || !slices.Equal(sum.Manifest.Omitted, want) {
		t.Errorf("%q, %v", sum.Manifest.Omitted, err)
	}
	w.empty()
	if _, err := Restore(t.Context(), bytes.NewReader(data), w.request()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app/.env", "app/sub/.git/config"} {
		if _, err := os.Stat(filepath.Join(w.root, name)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(w.root + "/app"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestCertDir checks that each file of --cert-dir is in a backup, or named as left out. The backup can be restored, also if a link leads
// nowhere or to another link.
func TestCertDir(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const dir = "kubelet/pki/"
	kept := []string{"tls.p12", "chain.cer", "README", "etcd.pem", "own.pass"}
	for _, name := range kept {
		w.write(dir+name, name)
	}
	large := strings.Repeat("x", maxFile+1)
	w.write(dir+"log", large)
	w.write(dir+".hidden.pem", "x")
	w.write(dir+".named.pem", "named")
	w.write(dir+"sub/ca.crt", "x")
	links := map[string]string{"short": "tls.p12", "chain": "short", "nowhere.pem": "gone.pem", "away.key": w.root + "/conf/key.pem", "big": "log",
		"configured.crt": w.root + "/conf/key.pem"}
	for name, to := range links {
		if err := os.Symlink(to, w.root+"/"+dir+name); err != nil {
			t.Fatal(err)
		}
	}
	w.cfg.Kubelet.TLSCertFile = w.dirs.Cert + "/configured.crt"
	if err := os.Symlink("/nowhere", w.dirs.State+"/other.json"); err != nil {
		t.Fatal(err)
	}
	s := w.source()
	s.Include = []string{w.dirs.Cert + "/.named.pem"}
	data := w.archive(s)
	sum, err := Check(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{w.dirs.State + "/other.json"}
	for _, name := range []string{".hidden.pem", "away.key", "big", "chain", "log", "nowhere.pem", "sub"} {
		want = append(want, w.dirs.Cert+"/"+name)
	}
	if !slices.Equal(sum.Manifest.Omitted, want) {
		t.Errorf("%q instead of %q", sum.Manifest.Omitted, want)
	}
	w.empty()
	if _, err := Restore(t.Context(), bytes.NewReader(data), w.request()); err != nil {
		t.Fatal(err)
	}
	now := w.files()
	for _, name := range kept {
		if now[dir+name] != name {
			t.Errorf("%s: %q", name, now[dir+name])
		}
	}
	if now[dir+"short"] != w.dirs.Cert+"/tls.p12" || now[dir+".named.pem"] != "named" || now[dir+"configured.crt"] != "key" {
		t.Errorf("%q", now)
	}
}

// TestImpossible checks that a plan is refused whose renames would fail after the decision, and that a file which is the same is not
// renamed.
func TestImpossible(t *testing.T) {
	t.Parallel()
	dir, long := t.TempDir(), strings.Repeat("x", unix.NAME_MAX-3)
	for name, p := range map[string]*plan{
		"a mount point":           {Moves: []move{{To: "/proc", Aside: "/.proc.before"}}},
		"a long name":             {Moves: []move{{To: filepath.Join(dir, long), Aside: filepath.Join(dir, "."+long+".before")}}},
		"a long name to be":       {Moves: []move{{From: "x", To: filepath.Join(dir, "missing", long+"long")}}},
		"a link with a long name": {Links: []link{{Path: filepath.Join(dir, long), Target: "x"}}},
	} {
		if err := p.check(); err == nil {
			t.Errorf("%s is not an error", name)
		}
	}
	w := newWorld(t)
	data := w.archive(w.source())
	before, err := os.Stat(w.root + "/conf/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	q := w.request()
	q.SetAside = true
	if _, err := Restore(t.Context(), bytes.NewReader(data), q); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(w.root + "/conf/key.pem"); err != nil || !os.SameFile(before, now) {
		t.Errorf("a file with the same content was replaced: %v", err)
	}
	w.write("state/"+journalName, "{}")
	q.DryRun = true
	if _, err := Restore(t.Context(), bytes.NewReader(data), q); err == nil || !IsDecided(w.dirs.State) {
		t.Errorf("a dry run completes another restore: %v", err)
	}
}

// TestDetached checks that an Archive needs no file of the node any more, and leaves none.
func TestDetached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.files()
	a, err := w.source().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now := w.files(); len(now) != len(before) {
		t.Errorf("%d files instead of %d", len(now), len(before))
	}
	w.empty()
	var out bytes.Buffer
	if err := errors.Join(a.Write(t.Context(), &out), a.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), &out); err != nil {
		t.Error(err)
	}
}

// TestMountPoint finds mount points on a kernel whose statx does not report them.
func TestMountPoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/proc", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/proc": true, dir: false, dir + "/link": false} {
		var s unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &s); err != nil {
			t.Fatal(err)
		}
		s.Attributes_mask &^= unix.STATX_ATTR_MOUNT_ROOT
		s.Attributes &^= unix.STATX_ATTR_MOUNT_ROOT
		if got := isMountPoint(path, &s); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
