package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPowerCut cuts the power after each durable write of an application, of the end of its trial, and of a revert. After the next start
// the node has either the old or the new state, with exactly the folders and images of that state, and the application can be repeated.
func TestPowerCut(t *testing.T) {
	type cut struct{ step int }
	files := newWorld(t)
	one, two := files.bundle(1, nil), files.bundle(2, second("more"))
	states := map[string]int{}
	for step := 0; ; step++ {
		w := newWorld(t)
		n := w.boot(nil)
		if _, err := apply(n, one, false); err != nil {
			t.Fatal(err)
		}
		keep(n)
		left, last := step, ""
		n = w.boot(func(name string) {
			last = name
			if left == 0 {
				panic(cut{step})
			}
			left--
		})
		done := func() (done bool) {
			defer func() {
				if r := recover(); r != nil && r != (cut{step}) {
					panic(r)
				}
			}()
			if _, err := apply(n, two, false); err != nil {
				t.Fatal(err)
			}
			keep(n)
			if _, err := n.Revert(t.Context()); err != nil {
				t.Fatal(err)
			}
			return true
		}()
		n = w.boot(nil)
		l := &loop{Node: n}
		l.begin()
		l.round(t.Context())
		r := n.now()
		state := fmt.Sprintf("in force %d", r.InForce().Number)
		if r.Trial != nil {
			state = fmt.Sprintf("trial %d", r.Trial.Number)
		}
		states[state]++
		want := []string{"web"}
		if r.InForce().Number == 2 {
			want = []string{"more", "web"}
		}
		if !slices.Equal(w.names(), want) {
			t.Errorf("after %q (step %d): %s with the pods %v", last, step, state, w.names())
		}
		w.check(n, fmt.Sprintf("after %q (step %d)", last, step))
		if r.Trial == nil && r.Current.Number == 1 {
			again := func() (err error) { _, err = apply(n, two, false); return err }
			if r.Highest[r.Current.Name] < 2 { // it was never in force, so the node tries it by itself too
				again = func() (err error) { _, _, err = n.ApplyNewest(t.Context(), offers(two)); return err }
			}
			if err := again(); err != nil {
				t.Errorf("again after %q (step %d): %v", last, step, err)
			}
		}
		if done {
			break
		}
	}
	if len(states) != 3 || states["in force 1"] < 5 {
		t.Errorf("the power was not cut in all states: %v", states)
	}
}

// TestLeftovers checks that Apply removes a folder that an earlier Apply has left after a power cut. There may be no record.
func TestLeftovers(t *testing.T) {
	w := newWorld(t)
	left := filepath.Join(w.dir, foldersDir, "."+folderName(someDigest("1"))+".new", filesDir)
	w.must(os.MkdirAll(left, 0o700))
	w.must(os.WriteFile(filepath.Join(left, "web.yaml"), []byte("half"), 0o600))
	n := w.boot(nil)
	if _, err := apply(n, w.bundle(1, nil), false); err != nil {
		t.Fatal(err)
	}
	w.check(n, "after an application")
}

// TestUnusedNode checks that a node without a bundle starts no goroutine and writes nothing, and that an unreadable record is reported.
func TestUnusedNode(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	n.Start(t.Context(), func(func() error) { t.Error("a goroutine was started") })
	if n.InUse() {
		t.Error("a bundle is in use")
	}
	if list, err := os.ReadDir(w.dir); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	if _, err := n.Revert(t.Context()); err == nil || err.Error() != "no bundle is in use" {
		t.Error(err)
	}
	w.must(os.WriteFile(filepath.Join(w.dir, File), []byte("{"), 0o600))
	if n := w.boot(nil); !n.InUse() {
		t.Error("the pods of a bundle would end because its record cannot be read")
	} else if _, err := n.Status(); err == nil || !strings.Contains(err.Error(), "restore the file") {
		t.Error(err)
	}
}
