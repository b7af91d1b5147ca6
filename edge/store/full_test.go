package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/disktest"
)

func TestFullDisk(t *testing.T) {
	d := disktest.New(t)
	ctx := t.Context()
	path := filepath.Join(d.Dir, "islet.db")
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
		d.Fill()
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
			must(t, os.RemoveAll(filepath.Join(d.Dir, "fill")))
			for suffix, data := range left {
				must(t, os.WriteFile(path+suffix, data, 0o600))
			}
			d.Fill()
			s = open(t, path)
		}
		if _, yes := s.Rebuilt(); yes {
			t.Fatal("a full disk counted as a damaged file")
		}
		intact("opened while full")
		if err := write(); err != nil && !errors.Is(err, ErrFull) {
			t.Error(err)
		}

		d.Free()
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
