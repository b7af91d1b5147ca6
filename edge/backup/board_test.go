package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/store"
)

// TestConfigurationOfBoard restores on a board that has the configuration files that an agent reads without a flag. Files that the archive
// lacks are set aside. Files with the content of the archive stay.
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
			t.Errorf("%s is not a file of a node", name)
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

// TestIndex restores over a node that has seen another index of versions. The later one stays in force. The result names a record that
// cannot be read, for example because it is too large or nested too deeply. If the archive has no record of an index, the restored node has
// none.
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
				t.Errorf("%s: it is not a file of a node", name)
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

// TestFlags restores over a flags file, and interrupts the restore at the steps around its change. An agent finds an interrupted restore by
// these flags. The file is therefore replaced first, and always exists.
func TestFlags(t *testing.T) {
	t.Parallel()
	for cut := range 7 { // 0 means that the restore is not interrupted
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

// TestAfter checks that the name of the node is that of the flags after the restore: the flags of the archive, or none. The flags of the
// board never count, because they are set aside.
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

// TestStaysOnBoard restores on the board of another node. The data of its claims are set aside. Its images stay, and the pods of the
// restored node need a credential for each image that was pulled, also if the pull was interrupted. If the records of the pulls cannot be
// read, the images are set aside too.
func TestStaysOnBoard(t *testing.T) {
	t.Parallel()
	const claim, blob = "claims/default/queue/data", "containerd/blob"
	for name, c := range map[string]struct {
		database string // what happens to the database of the board
		aside    bool   // the images
	}{"an intact database": {"", false}, "a damaged database": {"damaged", true}, "no database": {"missing", true}} {
		w := newWorld(t)
		st := w.store()
		own := store.Pull{Image: "sha256:own", Name: "registry/own"}
		if err := errors.Join(st.PutPull(t.Context(), own, ""), st.Close()); err != nil {
			t.Fatal(err)
		}
		data := w.archive(w.source())
		w.empty()
		st = w.store()
		secret := store.PullSource{Kind: "Secret", Namespace: "default", Name: "login", UID: "1", Hash: []byte("hash")}
		if err := errors.Join(st.PutPull(t.Context(), store.Pull{Image: "sha256:private", Name: "registry/private", Source: secret}, ""),
			st.PutPull(t.Context(), store.Pull{Image: "sha256:open", Name: "registry/open"}, ""),
			st.BeginPull(t.Context(), store.BegunPull{Ref: "registry/begun:1", Was: "sha256:before"}), st.Close()); err != nil {
			t.Fatal(err)
		}
		w.write("state/"+claim, "of the other node")
		w.write("state/"+blob, "layer")
		switch c.database {
		case "damaged":
			w.write("state/islet.db", strings.Repeat("damaged", 1000))
		case "missing":
			if err := os.Remove(w.dirs.State + "/islet.db"); err != nil {
				t.Fatal(err)
			}
		}
		q := w.request()
		_, err := Restore(t.Context(), bytes.NewReader(data), q)
		if err == nil || !strings.Contains(err.Error(), w.dirs.State+"/claims") ||
			c.database == "missing" && !strings.Contains(err.Error(), w.dirs.State+"/containerd") {
			t.Errorf("%s: without SetAside: %v", name, err)
		}
		q.SetAside, q.DryRun = true, true
		dry, err := Restore(t.Context(), bytes.NewReader(data), q)
		if err != nil || !slices.Contains(dry.InTheWay, w.dirs.State+"/claims") ||
			slices.Contains(dry.InTheWay, w.dirs.State+"/containerd") != c.aside {
			t.Fatalf("%s: a dry run: %+v, %v", name, dry, err)
		}
		q.DryRun = false
		res, err := Restore(t.Context(), bytes.NewReader(data), q)
		if err != nil {
			t.Fatal(err)
		}
		now := w.files()
		if now["state/"+claim] != "" || now["state/.claims"+res.Aside+"/default/queue/data"] != "of the other node" {
			t.Errorf("%s: the restored node has the data of the other one, or they are lost", name)
		}
		if now["state/"+blob] == "" != c.aside || now["state/.containerd"+res.Aside+"/blob"] == "" == c.aside {
			t.Errorf("%s: the images: %q", name, slices.Sorted(maps.Keys(now)))
		}
		want := []string{
			"[{sha256:own registry/own {    []}}]", "[{sha256:private  {    []}}]", "[{sha256:open  {    []}}]",
			"[{registry/begun:1 sha256:before}]",
		}
		if c.aside {
			want = []string{want[0], "[]", "[]", "[]"}
		}
		st = w.store()
		for i, id := range []string{"sha256:own", "sha256:private", "sha256:open"} {
			if got, err := st.PullsOf(t.Context(), id); err != nil || fmt.Sprint(got) != want[i] {
				t.Errorf("%s: the pulls are %v, %v instead of %s", name, got, err, want[i])
			}
		}
		if got, err := st.BegunPulls(t.Context()); err != nil || fmt.Sprint(got) != want[3] {
			t.Errorf("%s: the pulls that have begun are %v, %v instead of %s", name, got, err, want[3])
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}
