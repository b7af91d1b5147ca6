package desired

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// A disk is a Store that counts its updates. It can block the first update, and it rejects updates of one pod.
type disk struct {
	memory
	wait         chan struct{} // if nil, the first update does not block
	predecessors chan struct{}
	refuses      types.UID
	updates      int
}

func (d *disk) UpdatePods(ctx context.Context, put []store.Pod, remove []types.UID) error {
	d.updates++
	if d.wait != nil {
		wait := d.wait
		d.wait = nil
		d.predecessors <- struct{}{}
		<-wait
	}
	for _, p := range put {
		if p.Pod.UID == d.refuses {
			return errFull
		}
	}
	return d.memory.UpdatePods(ctx, put, remove)
}

func onDisk(t *testing.T) (*disk, *Desired) {
	t.Helper()
	k := &disk{memory: memory{pods: map[types.UID]store.Pod{}}, predecessors: make(chan struct{})}
	d, err := New(Config{Store: k, Poke: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k, d
}

// meanwhile applies changes while the disk is busy with another change. It returns the errors of the changes.
func (k *disk) meanwhile(t *testing.T, d *Desired, changes ...func() error) []error {
	t.Helper()
	release := make(chan struct{})
	k.wait, k.updates = release, 0
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.Set(t.Context(), HTTP, sourcePods("first/first"), nil); err != nil {
			t.Error(err)
		}
	})
	<-k.predecessors
	errs := make([]error, len(changes))
	for i, change := range changes {
		all.Go(func() { errs[i] = change() })
		for asked := 0; asked <= i; runtime.Gosched() {
			d.waitingMu.Lock()
			asked = len(d.waiting)
			d.waitingMu.Unlock()
		}
	}
	close(release)
	all.Wait()
	return errs
}

// TestChangesShareAWait checks that one update stores all changes that arrive while the disk is busy.
func TestChangesShareAWait(t *testing.T) {
	const pods = 50
	k, d := onDisk(t)
	var specs []string
	for i := range pods {
		specs = append(specs, fmt.Sprintf("p%d/u%d", i, i))
	}
	for _, set := range [][]SourcePod{sourcePods(specs...), nil} {
		if err := d.Set(t.Context(), File, set, nil); err != nil {
			t.Fatal(err)
		}
	}
	var forget []func() error
	for i := range pods {
		forget = append(forget, func() error { return d.Forget(t.Context(), types.UID(fmt.Sprint("u", i))) })
	}
	if err := errors.Join(k.meanwhile(t, d, forget...)...); err != nil {
		t.Error(err)
	}
	if k.updates != 2 || len(d.List()) != 1 || len(k.pods) != 1 {
		t.Errorf("%d waits for the disk, %d pods are left, %d are stored", k.updates, len(d.List()), len(k.pods))
	}
}

// TestAChangeFailsAlone checks that the other changes of an update succeed when the store rejects one change.
func TestAChangeFailsAlone(t *testing.T) {
	k, d := onDisk(t)
	k.refuses = "bad"
	errs := k.meanwhile(t, d,
		func() error { return d.Set(t.Context(), File, sourcePods("a/a1"), nil) },
		func() error { return d.Delete(t.Context(), "nobody", nil) },
		func() error { return d.Update(t.Context(), API, sourcePods("b/bad"), nil) },
	)
	if errs[0] != nil || !errors.Is(errs[1], ErrNotFound) || !errors.Is(errs[2], errFull) {
		t.Error(errs)
	}
	_, good := d.Get("a1")
	_, bad := d.Get("bad")
	if !good || bad {
		t.Errorf("the good one: %v, the bad one: %v", good, bad)
	}
}

// TestFullDisk checks that nothing changes on a full disk. The reported problem must contain the reason, and a later call must succeed.
func TestFullDisk(t *testing.T) {
	disk := &memory{pods: map[types.UID]store.Pod{}, full: true}
	d, err := New(Config{Store: disk, Poke: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	bad := []Problem{{Origin: "x", Message: "bad"}}
	if err := d.Set(ctx, File, sourcePods("a/a1"), bad); !errors.Is(err, errFull) || len(d.List()) != 0 || d.HasReported(File) {
		t.Error(err, d.List())
	}
	if got := d.Problems(); len(got) != 2 || !strings.Contains(got[0].Message, "full") {
		t.Error(got)
	}
	disk.full = false
	if err := d.Set(ctx, File, sourcePods("a/a1"), bad); err != nil || len(d.List()) != 1 || len(d.Problems()) != 1 {
		t.Error(err, d.List(), d.Problems())
	}
}

// TestPokeMayCallBack checks that Poke may call methods of Desired, including methods that change it.
func TestPokeMayCallBack(t *testing.T) {
	var d *Desired
	disk := &memory{pods: map[types.UID]store.Pod{}}
	d, err := New(Config{Store: disk, Log: slog.New(slog.DiscardHandler), Poke: func(uid types.UID) {
		if p, ok := d.Get(uid); ok && p.Deleting {
			if err := d.Forget(t.Context(), uid); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range [][]SourcePod{sourcePods("a/a1"), nil} {
		if err := d.Set(t.Context(), File, set, nil); err != nil {
			t.Fatal(err)
		}
	}
	if left := d.List(); len(left) != 0 {
		t.Error(left)
	}
}
