package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/internal/disktest"
)

// A diskStore is a Store on the disk of the state directory.
type diskStore struct {
	*world
}

func (s diskStore) SetMeta(ctx context.Context, key, value string) error {
	if err := os.WriteFile(filepath.Join(s.dir, "database"), []byte(value), 0o600); err != nil {
		return err
	}
	return s.world.SetMeta(ctx, key, value)
}

// TestNoSpace checks that a bundle is refused before anything is written if the disk has too little space, and is accepted as soon as the
// disk has enough.
func TestNoSpace(t *testing.T) {
	d := disktest.NewOf(t, reserved+16<<20)
	w := newWorld(t)
	w.dir = d.Dir
	n := w.boot(nil)
	_, err := apply(n, w.bundle(1, nil), false)
	w.must(err)
	keep(n)
	two := w.bundle(2, second("more"))
	meta, record := w.meta[seenKey], n.now()
	clear(w.imported)
	for _, free := range []int64{0, reserved / 2, reserved} {
		d.Fill()
		d.Shrink(free)
		_, err := apply(n, two, false)
		if err == nil || !strings.Contains(err.Error(), d.Dir+" has ") || !strings.Contains(err.Error(), "islet df") {
			t.Errorf("%d bytes free: %v", free, err)
		}
		if len(w.imported) > 0 || len(w.folders()) != 1 || w.meta[seenKey] != meta || !reflect.DeepEqual(n.now(), record) {
			t.Errorf("%d bytes free: something was written: images %v, folders %v, record %+v", free, w.imported, w.folders(), n.now())
		}
	}
	d.Free()
	if b, err := apply(n, two, false); err != nil || b.Number != 2 {
		t.Errorf("there is space: %+v, %v", b, err)
	}
}

// TestFullDisk fills the disk after each durable write of an application, of the end of its trial, and of a revert. The error of a failed
// write names the disk. The node has the old or the new state, with exactly the folders and images of that state, also after a restart
// while the disk is full. As soon as there is space, the same bundle can be applied.
func TestFullDisk(t *testing.T) {
	d := disktest.NewOf(t, reserved+16<<20)
	files := newWorld(t)
	one, two := files.bundle(1, nil), files.bundle(2, second("more"))
	states, failures := map[string]int{}, 0
	for step, filled := 0, true; filled; step++ {
		w := newWorld(t)
		w.dir = filepath.Join(d.Dir, fmt.Sprint(step))
		w.must(os.Mkdir(w.dir, 0o700))
		n := w.boot(nil)
		_, err := apply(n, one, false)
		w.must(err)
		keep(n)
		left, last := step, ""
		filled = false
		n = w.boot(func(name string) {
			if left == 0 {
				d.Fill()
				filled, last = true, name
			}
			left--
		})
		n.c.Store = diskStore{w}
		_, err = apply(n, two, false)
		if err == nil {
			keep(n)
			_, err = n.Revert(t.Context())
		}
		what := fmt.Sprintf("full after %q (step %d)", last, step)
		if err != nil {
			failures++
		}
		if err != nil && (!errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), d.Dir)) {
			t.Errorf("%s: %v", what, err)
		}
		w.check(n, what)
		n = w.boot(nil)
		n.c.Store = diskStore{w}
		l := &loop{Node: n}
		l.begin()
		l.round(t.Context())
		r := n.now()
		states[fmt.Sprint(r.InForce().Number, r.Trial != nil)]++
		want := []string{"web"}
		if r.InForce().Number == 2 {
			want = []string{"more", "web"}
		}
		if !slices.Equal(w.names(), want) {
			t.Errorf("%s: %+v with the pods %v", what, r, w.names())
		}
		w.check(n, what+", after a restart")
		if filled {
			d.Free()
		}
		if r.Trial == nil && r.Current.Number == 1 {
			if _, err := apply(n, two, false); err != nil {
				t.Errorf("%s, then there is space: %v", what, err)
			}
		}
		if n.now().Trial != nil {
			keep(n)
		}
		if r := n.now(); r.Trial != nil || r.Current.Number != 2 {
			t.Errorf("%s, then there is space: %+v", what, r)
		}
		w.check(n, what+", at the end")
		w.must(os.RemoveAll(w.dir))
	}
	if states["1 false"] < 5 || states["2 true"] == 0 || states["2 false"] == 0 || failures < 5 {
		t.Errorf("the disk was not full in all states: %v, %d failures", states, failures)
	}
}
