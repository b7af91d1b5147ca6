package backup

import (
	"bytes"
	"database/sql"
	"errors"
	"io/fs"
	"maps"
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
			t.Errorf("%s is no error", name)
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

// TestConfigurationOfBoard restores over the configuration of a board that an agent reads without a flag. What the archive lacks is not in
// force any more, and what it has in the same form stays.
func TestConfigurationOfBoard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("conf/edge.yaml", "its own")
	s := w.source()
	s.Include = []string{w.root + "/conf/edge.yaml"}
	data := w.archive(s)
	for _, name := range ofConf {
		w.empty()
		w.write("conf/edge.yaml", "its own")
		if name != "edge.yaml" {
			w.write("conf/"+name, "another node")
		}
		w.write("conf/local.txt", "a file of nobody")
		q := w.request()
		q.Conf = w.root + "/conf"
		_, err := Restore(t.Context(), bytes.NewReader(data), q)
		if name == "edge.yaml" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s is no file of a node", name)
		}
		q.SetAside = true
		res, err := Restore(t.Context(), bytes.NewReader(data), q)
		if err != nil {
			t.Fatal(err)
		}
		now := w.files()
		if _, ok := now["conf/"+name]; ok || now["conf/."+name+res.Aside] != "another node" {
			t.Errorf("%s is in force, or lost", name)
		}
		if now["conf/edge.yaml"] != "its own" || now["conf/local.txt"] == "" {
			t.Errorf("%s: other files were set aside", name)
		}
	}
}

// TestIndex restores over a node that has seen another index of versions. The later one stays in force. A record that cannot be read, such
// as a large or a deep one, is named. A node that has seen none gets none.
func TestIndex(t *testing.T) {
	t.Parallel()
	const early, late = `{"signed":"2026-11-01T00:00:00Z"}`, `{"signed":"2026-11-27T00:00:00Z"}`
	bomb := `{"signed":` + strings.Repeat("[", maxRecord/2)
	for name, c := range map[string]struct {
		archive, board, want string
		unread               bool
	}{
		"a later one on the board":    {early, late, late, false},
		"a later one in the backup":   {late, early, late, false},
		"none on the board":           {early, "", early, false},
		"none in the backup":          {"", late, "", false},
		"a damaged one on the board":  {early, "{", early, true},
		"a damaged one in the backup": {"{", early, early, true},
		"a large one in the backup":   {bomb, early, early, true},
		"a deep one in the backup":    {bomb[:maxIndex], early, early, true},
	} {
		w := newWorld(t)
		if c.archive != "" {
			w.write("state/update/index.json", c.archive)
		}
		data := w.archive(w.source())
		w.empty()
		q := w.request()
		if c.board != "" {
			w.write("state/update/index.json", c.board)
			if _, err := Restore(t.Context(), bytes.NewReader(data), q); err == nil {
				t.Errorf("%s: it is no file of a node", name)
			}
		}
		q.SetAside = c.board != ""
		res, err := Restore(t.Context(), bytes.NewReader(data), q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		now := w.files()
		if got := now["state/update/index.json"]; got != c.want || (res.UnreadIndex != nil) != c.unread {
			t.Errorf("%s: %.80q, %v", name, got, res.UnreadIndex)
		}
		if c.board != "" && now["state/update/.index.json"+res.Aside] != c.board {
			t.Errorf("%s: the record of the board is lost", name)
		}
	}
}

// TestOtherDisk restores a record in a directory that may be on another disk. Before the decision it is copied beside its place, because a
// rename from the state directory could fail after the decision.
func TestOtherDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("state/update/index.json", "{}")
	s := w.source()
	s.Bundles = true
	data := w.archive(s)
	w.empty()
	w.write("disk/other", "")
	if err := os.Symlink(w.root+"/disk", w.dirs.State+"/update"); err != nil {
		t.Fatal(err)
	}
	q, seen := w.request(), false
	q.Step = func(step string) error {
		if step == "copied" {
			seen = exists(besidePath(w.root + "/disk/index.json"))
		}
		return nil
	}
	if _, err := Restore(t.Context(), bytes.NewReader(data), q); err != nil || !seen {
		t.Errorf("copied: %v, %v", seen, err)
	}
	if now := w.files(); now["disk/index.json"] != "{}" || now["state/bundles/sha256-ab/contents.json"] != "{}" {
		t.Errorf("%q", slices.Sorted(maps.Keys(now)))
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

// TestFlags restores over the flags of an agent, and is cut at the steps around their change. An agent finds the restore by its flags, so
// they change first and are there at each moment.
func TestFlags(t *testing.T) {
	t.Parallel()
	for cut := range 7 { // the first one is no cut
		w := newWorld(t)
		w.write("conf/flags", "--of=backup")
		s := w.source()
		s.Include = []string{w.root + "/conf/flags"}
		data := w.archive(s)
		w.write("conf/flags", "--of=board")
		moved, steps := 0, 0
		look := func(step string) {
			flags := w.files()["conf/flags"]
			if step == "moved" {
				moved++
			}
			if want := moved > 1; flags != map[bool]string{false: "--of=board", true: "--of=backup"}[want] {
				t.Errorf("%d files were moved (%s), and the flags are %q", moved, step, flags)
			}
		}
		q := w.request()
		q.Conf, q.SetAside = w.root+"/conf", true
		q.Step = func(step string) error {
			look(step)
			if steps++; steps == cut {
				return errCrash
			}
			return nil
		}
		_, err := Restore(t.Context(), bytes.NewReader(data), q)
		if (err != nil) != (cut > 0) || err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		decided := err == nil || IsDecided(w.dirs.State)
		if err := Recover(w.dirs.State); err != nil {
			t.Fatal(err)
		}
		now := w.files()
		if decided && (now["conf/flags"] != "--of=backup" || now["conf/.flags.before-restore-20261128T120000Z"] != "--of=board") {
			t.Errorf("after step %d: %q", cut, now["conf/flags"])
		}
	}
}

// TestAfter checks that the name of the node is that of the flags after the restore: those of the archive, or none, and never those of the
// board, which are set aside.
func TestAfter(t *testing.T) {
	t.Parallel()
	for _, ofBackup := range []string{"edge", "other", ""} {
		for _, ofBoard := range []string{"edge", "other", ""} {
			w := newWorld(t)
			s := w.source()
			if ofBackup != "" {
				w.write("conf/flags", ofBackup)
				s.Include = []string{w.root + "/conf/flags"}
			}
			data := w.archive(s)
			w.empty()
			w.write("conf/local", "a file of nobody")
			if err := os.Symlink("local", w.root+"/conf/link"); err != nil {
				t.Fatal(err)
			}
			if ofBoard != "" {
				w.write("conf/flags", ofBoard)
			}
			q := w.request()
			q.Conf, q.SetAside = w.root+"/conf", true
			q.Start = func(board fs.FS) ([]Identity, error) {
				dir := strings.TrimPrefix(w.root, "/") + "/conf"
				flags, err := fs.ReadFile(board, dir+"/flags")
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
				if local, err := fs.ReadFile(board, dir+"/local"); err != nil || string(local) != "a file of nobody" {
					t.Errorf("%q, %v", local, err)
				}
				if conf, err := fs.ReadFile(board, dir+"/kubelet.conf"); err != nil || len(conf) == 0 {
					t.Errorf("%q, %v", conf, err)
				}
				if to, err := fs.ReadLink(board, dir+"/link"); err != nil || to != "local" {
					t.Errorf("%q, %v", to, err)
				}
				return []Identity{{w.dirs, "host"}, {w.dirs, string(flags)}}, nil
			}
			_, err := Restore(t.Context(), bytes.NewReader(data), q)
			if want := ofBackup == "edge"; (err == nil) != want {
				t.Errorf("flags of the backup %q, of the board %q: %v", ofBackup, ofBoard, err)
			}
		}
	}
}
