package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// A disk is a small file system that a test can fill completely.
type disk struct {
	testing.TB
	dir string
}

func newDisk(t testing.TB) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	d := &disk{t, t.TempDir()}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("cannot mount a small disk:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *disk) fill() {
	d.Helper()
	f, err := os.Create(filepath.Join(d.dir, "fill"))
	must(d, err)
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else {
			must(d, err)
		}
	}
}

func (d *disk) free() { d.Helper(); must(d, os.Remove(filepath.Join(d.dir, "fill"))) }

func TestFullDisk(t *testing.T) {
	d := newDisk(t)
	ctx := t.Context()
	path := filepath.Join(d.dir, "islet.db")
	s := open(t, path)
	acknowledged, first := 0, types.UID(fmt.Sprintf("%032d", 0))
	write := func() error {
		p := typical(fmt.Sprintf("%032d", acknowledged))
		p.Seq = int64(acknowledged)
		err := s.UpdatePods(ctx, []Pod{p}, nil)
		if err == nil {
			acknowledged++
		}
		return err
	}
	intact := func(when string) {
		t.Helper()
		pods, err := s.Pods(ctx)
		if err != nil || len(pods) != acknowledged {
			t.Fatalf("%s: %d of %d pods are there: %v", when, len(pods), acknowledged, err)
		}
	}
	must(t, write())
	for round := range 5 {
		d.fill()
		var err error
		for err == nil {
			err = write()
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "no space left on the disk") {
			t.Fatal("the message does not name the disk:", err)
		}
		intact("full")
		status := &v1.PodStatus{Message: strings.Repeat(fmt.Sprint(round), 32<<10)}
		must(t, s.PutStatus(first, status))
		s.flush() // the -wal file may have free space

		// In two rounds, the store is opened again while the disk is full.
		switch round {
		case 1:
			s = reopen(t, s)
		case 2: // the store is not closed, so the -wal file is kept
			left := map[string][]byte{}
			for _, suffix := range suffixes[:2] {
				left[suffix], err = os.ReadFile(path + suffix)
				must(t, err)
			}
			must(t, s.Close())
			must(t, os.RemoveAll(filepath.Join(d.dir, "fill")))
			for suffix, data := range left {
				must(t, os.WriteFile(path+suffix, data, 0o600))
			}
			d.fill()
			s = open(t, path)
		}
		if _, yes := s.Rebuilt(); yes {
			t.Fatal("a full disk counted as a damaged file")
		}
		intact("opened while full")
		if err := write(); err != nil && !errors.Is(err, ErrFull) {
			t.Error(err)
		}

		d.free()
		must(t, write())
		must(t, write())
		intact("with room again")
		must(t, s.PutStatus(first, status))
		s = reopen(t, s)
		intact("opened with room")
		if got, err := s.Statuses(ctx); err != nil || !equality.Semantic.DeepEqual(got[first], status) {
			t.Error("a status was not written although the disk has free space:", err)
		}
	}
}
