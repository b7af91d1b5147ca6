package k3s

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A disk has a directory of a cluster, and files that belong to it.
type disk struct {
	t         *testing.T
	dir, root string
}

// newDisk returns a disk on which the cluster "old" is stored.
func newDisk(t *testing.T) *disk {
	d := &disk{t: t, dir: t.TempDir()}
	d.root = filepath.Join(d.dir, "k3s")
	if err := errors.Join(os.Mkdir(d.root, 0o700), os.Mkdir(filepath.Join(d.dir, "etc"), 0o755)); err != nil {
		t.Fatal(err)
	}
	d.write("etc/kubelet.yaml", "one of old")
	if err := Store(d.root, named("old"), nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *disk) write(name, content string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// files returns the files of the cluster "new". Only the first one exists.
func (d *disk) files() []File {
	return []File{
		{Path: filepath.Join(d.dir, "etc/kubelet.yaml"), Mode: 0o600, Old: []byte("one of old"), New: []byte("one of new")},
		{Path: filepath.Join(d.dir, "etc/edge.yaml"), Mode: 0o600, New: []byte("two of new")},
	}
}

// state returns the content of the files, and of some files in the directory in use.
func (d *disk) state() map[string]string {
	d.t.Helper()
	all := map[string]string{}
	for _, name := range []string{"etc/kubelet.yaml", "etc/edge.yaml", "k3s/current/cluster.json", "k3s/current/client-kubelet.pem", "k3s/current/token"} {
		text, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			d.t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

func named(name string) *Cluster {
	return &Cluster{Record: Record{Node: name}, Token: "token of " + name, Client: &Pair{PEM: []byte("key of " + name)},
		Serving: &Pair{PEM: []byte("key of " + name)}}
}

// TestCut cuts the power after each step of a Store, and after each step of its undoing. The agent then finds all of the old cluster, or
// all of the new one. Nothing of the other one is left after the next command.
func TestCut(t *testing.T) {
	plain := newDisk(t)
	old := plain.state()
	if err := Store(plain.root, named("new"), plain.files(), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	want := plain.state()
	if len(old) == 0 || maps.Equal(old, want) || want["etc/kubelet.yaml"] != "one of new" || want["etc/edge.yaml"] != "two of new" {
		t.Fatalf("%v, then %v", old, want)
	}
	all := 4
	for done := 0; done <= all; done++ {
		for undone := 0; undone <= done; undone++ {
			d := newDisk(t)
			steps, _, err := named("new").steps(d.root, d.files())
			if err != nil || len(steps) != all {
				t.Fatalf("%d steps, %v", len(steps), err)
			}
			for _, s := range steps[:done] {
				if err := s.do(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range undone {
				if err := steps[done-1-i].undo(); err != nil {
					t.Fatal(err)
				}
			}
			switched := done-undone >= 2
			rest, err := Complete(d.root)
			if rest != switched || err != nil {
				t.Errorf("%d steps, %d undone: %t, %v", done, undone, rest, err)
			}
			expected := old
			if switched {
				expected = want
			}
			if got := d.state(); !maps.Equal(got, expected) {
				t.Errorf("%d steps, %d undone: %v", done, undone, got)
			}
			if rest, err := Complete(d.root); rest || err != nil {
				t.Errorf("%d steps, %d undone: again %t, %v", done, undone, rest, err)
			}
			if err := Store(d.root, named("last"), nil, func() error { return nil }); err != nil {
				t.Error(err)
			}
			d.search("of new")
		}
	}
}

// cut begins a Store of the cluster "new", and cuts the power before the first of the files.
func (d *disk) cut(files []File) {
	d.t.Helper()
	steps, _, err := named("new").steps(d.root, files)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, s := range steps[:2] {
		if err := s.do(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// search reports files of the directory that contain a text.
func (d *disk) search(text string) {
	d.t.Helper()
	err := filepath.WalkDir(d.root, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), text) {
			d.t.Errorf("%s has %q", path, content)
		}
		return err
	})
	if err != nil {
		d.t.Error(err)
	}
}

// TestChangedMeanwhile checks that a file that somebody has changed keeps that change, during a Store and after a cut of one.
func TestChangedMeanwhile(t *testing.T) {
	d := newDisk(t)
	before := d.state()
	files := d.files()
	d.write("etc/kubelet.yaml", "edited")
	before["etc/kubelet.yaml"] = "edited"
	if err := Store(d.root, named("new"), files, func() error { return nil }); err == nil {
		t.Error("the change was ignored")
	}
	if got := d.state(); !maps.Equal(got, before) {
		t.Errorf("%v", got)
	}
	d.search("of new")
	d.cut(files)
	for range 2 {
		if rest, err := Complete(d.root); !rest || err == nil {
			t.Errorf("%t, %v", rest, err)
		}
		if got := d.state(); got["etc/kubelet.yaml"] != "edited" || got["etc/edge.yaml"] != "" {
			t.Errorf("one of the files was written: %v", got)
		}
	}
	d.write("etc/kubelet.yaml", "one of old") // the change is undone
	if rest, err := Complete(d.root); !rest || err != nil {
		t.Errorf("%t, %v", rest, err)
	}
	if got := d.state(); got["etc/kubelet.yaml"] != "one of new" || got["etc/edge.yaml"] != "two of new" {
		t.Errorf("%v", got)
	}
	d.write("etc/edge.yaml", "edited")
	files[0].Old, files[0].New = files[0].New, []byte("one of last")
	d.cut(files)
	if rest, err := Complete(d.root); !rest || err == nil {
		t.Errorf("%t, %v", rest, err)
	}
	if got := d.state(); got["etc/kubelet.yaml"] != "one of new" || got["etc/edge.yaml"] != "edited" {
		t.Errorf("one of the files was written: %v", got)
	}
	d.write("k3s/current/unfinished.json", strings.Repeat("[", 1<<20))
	if rest, err := Complete(d.root); !rest || err == nil {
		t.Errorf("a damaged file: %t, %v", rest, err)
	}
	l, err := Lock(d.root)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if rest, err := Complete(d.root); rest || err == nil {
		t.Errorf("a running command: %t, %v", rest, err)
	}
}

// TestForeignFiles checks that Complete writes no file if the list of files was not made by islet join, as in a forged backup. It also
// checks that no file gets mode bits other than permissions.
func TestForeignFiles(t *testing.T) {
	d := newDisk(t)
	d.write("etc/edge.yaml", "old")
	config := func(name string) File {
		return File{Path: name, Mode: 0o600 | os.ModeSetuid, Old: []byte("old"), New: []byte("new")}
	}
	edge := config(filepath.Join(d.dir, "etc/edge.yaml"))
	for _, name := range []string{"etc/passwd", "other/kubelet.yaml", "etc/.", "etc/kubelet.yaml/"} {
		d.cut([]File{edge, {Path: d.dir + "/" + name, Mode: 0o600, New: []byte("new")}})
		if rest, err := Complete(d.root); !rest || err == nil {
			t.Errorf("%s: %t, %v", name, rest, err)
		}
		if _, err := os.Lstat(filepath.Join(d.dir, "other")); err == nil {
			t.Errorf("%s was made", name)
		}
		if got := d.state(); got["etc/edge.yaml"] != "old" || got["etc/kubelet.yaml"] != "one of old" {
			t.Errorf("%s: %v", name, got)
		}
	}
	t.Chdir(d.dir)
	d.cut([]File{config("etc/edge.yaml")})
	if rest, err := Complete(d.root); !rest || err == nil {
		t.Errorf("a relative path: %t, %v", rest, err)
	}
	d.cut([]File{edge})
	if rest, err := Complete(d.root); !rest || err != nil {
		t.Errorf("%t, %v", rest, err)
	}
	if info, err := os.Stat(edge.Path); err != nil || info.Mode() != 0o600 || d.state()["etc/edge.yaml"] != "new" {
		t.Errorf("%v, %v", info, err)
	}
}

// TestLock checks that a command waits for a renewal or a backup, which lock the files for a short time. It does not wait for another
// command.
func TestLock(t *testing.T) {
	root := filepath.Join(t.TempDir(), "k3s")
	if none, err := LockFiles(root); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	command, err := Lock(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(root); err == nil {
		t.Error("two commands run")
	}
	if _, err := LockFiles(root); err == nil {
		t.Error("the files of a command are locked")
	}
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	shared := func() *os.File {
		l, err := LockFiles(root)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	// Both locks end while the command waits, one after the other.
	locks := []*os.File{shared(), shared()}
	command, err = lockWhenFree(root, func() {
		if len(locks) == 0 {
			t.Fatal("a free lock was refused")
		}
		if err := locks[0].Close(); err != nil {
			t.Fatal(err)
		}
		locks = locks[1:]
	})
	if err != nil || len(locks) > 0 {
		t.Errorf("%v, %d locks are left", err, len(locks))
	}
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	// Two commands wait, and one of them gets the lock.
	backup, pauses := shared(), 0
	_, err = lockWhenFree(root, func() {
		pauses++
		command, err = lockWhenFree(root, func() {
			pauses++
			backup.Close()
		})
	})
	if err == nil || command == nil || pauses != 2 {
		t.Errorf("both commands run, or none: %v, %v, %d pauses", err, command, pauses)
	}
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	// The wait for a lock that is not released is limited.
	backup, pauses = shared(), 0
	if _, err := lockWhenFree(root, func() { pauses++ }); err == nil || pauses != maxPauses {
		t.Errorf("%v, %d pauses", err, pauses)
	}
	if err := backup.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCompleteDuringCommand checks that Complete waits for a backup. It does not wait for a command, which itself may wait for islet setup,
// which calls Complete.
func TestCompleteDuringCommand(t *testing.T) {
	d := newDisk(t)
	d.cut(d.files())
	command, err := Lock(d.root)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := Complete(d.root); rest || err == nil {
		t.Errorf("%t, %v", rest, err)
	}
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	backup, err := LockFiles(d.root)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(pauseTime, func() { backup.Close() })
	if rest, err := Complete(d.root); !rest || err != nil {
		t.Errorf("%t, %v", rest, err)
	}
}
