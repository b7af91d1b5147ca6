package pinning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/device/devicemanager"
)

// A slowPlugin is a fake provider whose answers the test sends.
type slowPlugin struct {
	asked  chan devicemanager.Request
	answer chan error
}

func (s slowPlugin) Allocate(ctx context.Context, r devicemanager.Request) (devicemanager.Allocation, error) {
	s.asked <- r
	select {
	case err := <-s.answer:
		if errors.Is(err, errPanic) {
			panic(err)
		}
		return devicemanager.Allocation{}, err
	case <-ctx.Done():
		return devicemanager.Allocation{}, ctx.Err()
	}
}

// errPanic is an answer that makes the call panic.
var errPanic = errors.New("panic")

const slow = "example.com/slow"

// plugSlow connects a plugin with device x on NUMA node 0, and y and z on node 1.
func (w *world) plugSlow() slowPlugin {
	w.t.Helper()
	s := slowPlugin{make(chan devicemanager.Request), make(chan error)}
	l, err := w.devices.Connect(w.t.Context(), slow, s)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := l.Devices([]devicemanager.Device{{ID: "x", Healthy: true, NUMA: []int64{0}}, {ID: "y", Healthy: true, NUMA: []int64{1}}, {ID: "z", Healthy: true, NUMA: []int64{1}}}); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// podWith returns a pod with one container that requests CPUs and devices of a resource.
func (w *world) podWith(uid, cpus, name string, devices int) *v1.Pod {
	p := w.pod(uid, cpus)
	p.Spec.Containers[0].Resources.Limits[v1.ResourceName(name)] = *resource.NewQuantity(int64(devices), resource.DecimalSI)
	return p
}

// A decision is the result of Admit.
type decision struct {
	reason string
	err    error
}

func (w *world) admitLater(ctx context.Context, p *v1.Pod) <-chan decision {
	out, m := make(chan decision, 1), w.Manager
	go func() {
		d := decision{err: errPanic}
		defer func() {
			_ = recover() // as the pod's worker does
			out <- d
		}()
		d.reason, _, d.err = m.Admit(ctx, p)
	}()
	return out
}

// everyPolicy calls the function check in a bubble for each policy and scope of the topology manager.
func everyPolicy(t *testing.T, check func(t *testing.T, w *world, aligned bool)) {
	for _, policy := range []string{"none", "best-effort", "restricted", "single-numa-node"} {
		for _, scope := range []string{"container", "pod"} {
			t.Run(policy+" "+scope, func(t *testing.T) {
				flags := static("--topology-manager-policy="+policy, "--topology-manager-scope="+scope,
					"--memory-manager-policy=Static", "--reserved-memory=0:memory=50Mi;1:memory=50Mi")
				synctest.Test(t, func(t *testing.T) { check(t, newWorld(t, flags...), policy != "none") })
			})
		}
	}
}

// TestPluginThatHangs checks that a device plugin that does not answer delays only the pods that request its devices. The resources that
// are reserved for such a pod are not given to other pods, and NUMA nodes are selected among the other resources.
func TestPluginThatHangs(t *testing.T) {
	everyPolicy(t, func(t *testing.T, w *world, aligned bool) {
		w.plug()
		s, began := w.plugSlow(), time.Now()
		early := w.pod("early", "1")
		w.admit(early, "", "")
		hangs := w.podWith("hangs", "2", slow, 2)
		decided := w.admitLater(t.Context(), hangs)
		if r := <-s.asked; aligned && !slices.Equal(r.IDs, []string{"y", "z"}) {
			t.Errorf("reserved devices %q", r.IDs)
		}
		for range 2 {
			if err := w.Release(t.Context(), "early"); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Ended(t.Context(), w.pod("other", "1")), w.Release(t.Context(), "unknown")); err != nil {
			t.Fatal(err)
		}
		w.admit(w.pod("plain", "2"), "", "")
		w.admit(w.podWith("serial", "1", serial, 1), "", "")
		short := w.admitLater(t.Context(), w.podWith("short", "100m", slow, 2))
		synctest.Wait()
		w.admit(w.podWith("late", "100m", serial, 1), "", "") // a pod that fits does not wait for one that waits
		if w.Exclusive("hangs", "c0") || len(w.Holding("hangs", "c0").Memory) != 0 || !w.NeedsAllocation(hangs) {
			t.Error("a reservation has an effect before it is stored")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("other pods waited %s", took)
		}
		s.answer <- nil
		if got := <-decided; got.reason != "" || got.err != nil {
			t.Fatal(got)
		}
		if got := <-short; got.reason == "" || got.err != nil {
			t.Errorf("a device was given twice: %v", got)
		}
		w.checkAssignments()
		if got := w.Holding("hangs", "c0"); aligned && (got.CPUs[0]%2 != 1 || got.CPUs[1]%2 != 1 || !slices.Equal(got.Memory[0].Nodes, []int{1})) {
			t.Errorf("not aligned: %+v", got)
		}
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
		w.checkAssignments()
		if len(w.locks) != 0 || len(w.reserved.drafts) != 0 {
			t.Errorf("left are %v, %v", w.locks, w.reserved)
		}
	})
}

// TestReservationEnds checks that a pod whose device plugin fails, or whose admission is abandoned or panics, gives everything back, and
// that a pod that lacked these resources gets them. Until then it is not refused, because the reservation is the only obstacle.
func TestReservationEnds(t *testing.T) {
	everyPolicy(t, func(t *testing.T, w *world, _ bool) {
		s, big := w.plugSlow(), []string{"3", "3"} // of 7 CPUs
		if name := w.policy.Name(); name == "restricted" || name == "single-numa-node" {
			big = []string{"4"} // all CPUs of node 1
		}
		for i, end := range []func(stop func()){
			func(func()) { s.answer <- errors.New("it burns") },
			func(stop func()) { stop() },
			func(func()) { s.answer <- errPanic },
		} {
			ctx, stop := context.WithCancel(t.Context())
			hangs := w.podWith("hangs", "3", slow, 2)
			decided := w.admitLater(ctx, hangs)
			<-s.asked
			p := w.pod("big", big...)
			waits := w.admitLater(t.Context(), p)
			impatient, leave := context.WithCancel(t.Context())
			leaves := w.admitLater(impatient, w.pod("impatient", big...))
			synctest.Wait()
			if len(waits) > 0 {
				t.Fatal("the resources were given twice, or the pod was refused:", <-waits)
			}
			leave()
			if got := <-leaves; !errors.Is(got.err, context.Canceled) || got.reason != "" {
				t.Errorf("a pod that no longer waits: %v", got)
			}
			end(stop)
			if got := <-decided; (got.err != nil) != (i > 0) || (got.reason != "") != (i == 0) {
				t.Fatal(got)
			}
			stop()
			if got := <-waits; got.reason != "" || got.err != nil {
				t.Fatal(got)
			}
			w.checkAssignments()
			if err := w.Release(t.Context(), p.UID); err != nil || w.freed != i+1 {
				t.Errorf("%v; %d notifications of rejected pods", err, w.freed)
			}
			if rows, err := w.db.Devices(t.Context()); err != nil || len(rows) != 0 || w.Exclusive("hangs", "c0") || len(w.devices.Holdings()) != 0 {
				t.Errorf("left %v: %v", rows, err)
			}
		}
		again := w.admitLater(t.Context(), w.podWith("again", "3", slow, 2))
		<-s.asked
		s.answer <- nil
		if got := <-again; got.reason != "" || got.err != nil || len(w.reserved.drafts) != 0 || len(w.locks) != 0 {
			t.Error(got, w.reserved, w.locks)
		}
	})
}

// TestOvertaken checks that a pod waits only for the reservations that it has found. If later pods have reserved the resources that it
// lacks, it is not rejected, but tries again later. It is rejected if it lacks resources that no reservation contains.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, static()...)
		s := w.plugSlow()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		first := w.admitLater(ctx, w.podWith("first", "3", slow, 1))
		<-s.asked
		p := w.pod("big", "6")
		big := w.admitLater(t.Context(), p)
		synctest.Wait()
		later := w.admitLater(t.Context(), w.podWith("later", "3", slow, 1))
		<-s.asked
		stop()
		if got := <-first; !errors.Is(got.err, context.Canceled) {
			t.Error(got)
		}
		if got := <-big; !errors.Is(got.err, errOvertaken) || got.reason != "" {
			t.Errorf("a pod that was overtaken: %v", got)
		}
		s.answer <- nil
		if got := <-later; got.reason != "" || got.err != nil {
			t.Error(got)
		}
		w.admit(p, devicemanager.Unexpected, "not enough cpus available")
	})
}

// TestReleaseWaitsForItsPod checks that the release of a pod whose admission has not ended waits, so that nothing is left afterwards.
func TestReleaseWaitsForItsPod(t *testing.T) {
	w := newWorld(t, static()...)
	s := w.plugSlow()
	p := w.podWith("p", "2", slow, 1)
	decided := w.admitLater(t.Context(), p)
	<-s.asked
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Release(ctx, p.UID); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	released := make(chan error, 1)
	go func() { released <- w.Release(t.Context(), p.UID) }()
	s.answer <- nil
	if got := <-decided; got.err != nil || got.reason != "" {
		t.Error(got)
	}
	if err := errors.Join(<-released, w.devices.Release(t.Context(), p.UID)); err != nil {
		t.Error(err)
	}
	if rows, err := w.db.Devices(t.Context()); err != nil || len(rows) != 0 || w.Exclusive(p.UID, "c0") {
		t.Errorf("left %v: %v", rows, err)
	}
}

// TestRestartDuringAllocate checks that a restart of the agent during an admission leaves no reservation.
func TestRestartDuringAllocate(t *testing.T) {
	w := newWorld(t, static()...)
	s := w.plugSlow()
	p := w.podWith("p", "5", slow, 3)
	decided := w.admitLater(t.Context(), p)
	<-s.asked
	if err := w.start(); err != nil { // closes the store of the first Manager
		t.Fatal(err)
	}
	s.answer <- nil
	if got := <-decided; got.err == nil {
		t.Error("an admission that is not stored has an effect:", got)
	}
	if !w.NeedsAllocation(p) {
		t.Error("the pod has resources")
	}
	w.admit(w.pod("other", "7"), "", "")
}

// TestManyAdmissions checks that concurrent admissions and releases never give a CPU, a device or memory to two pods.
func TestManyAdmissions(t *testing.T) {
	everyPolicy(t, func(t *testing.T, w *world, _ bool) {
		w.plug()
		s := w.plugSlow()
		done := make(chan struct{})
		go func() {
			for i := 0; ; i++ {
				select {
				case <-s.asked:
					go func() {
						var err error
						if i%3 == 0 {
							err = errors.New("it burns")
						}
						s.answer <- err
					}()
				case <-done:
					return
				}
			}
		}()
		var all sync.WaitGroup
		for i := range 12 {
			uid := fmt.Sprint("p", i)
			p := w.podWith(uid, fmt.Sprint(1+i%3), []string{slow, serial}[i%2], 1+i%2)
			all.Go(func() {
				for range 5 {
					reason, _, err := w.Admit(t.Context(), p)
					if err != nil && !errors.Is(err, errOvertaken) {
						t.Error(err)
					}
					if reason != "" || err != nil {
						continue
					}
					w.checkAssignments()
					if err := errors.Join(w.devices.Release(t.Context(), p.UID), w.Release(t.Context(), p.UID)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		close(done)
		if rows, err := w.db.Devices(t.Context()); err != nil || len(rows) != 0 || len(w.devices.Holdings()) != 0 {
			t.Errorf("left %v: %v", rows, err)
		}
		if len(w.locks) != 0 || len(w.reserved.drafts) != 0 || len(w.cpuSets) != 0 {
			t.Errorf("left are %v, %v, %v", w.locks, w.reserved, w.cpuSets)
		}
		w.admit(w.pod("big", "4"), "", "")
	})
}

// checkAssignments checks that no CPU and no device belongs to two containers, and that there is enough memory.
func (w *world) checkAssignments() {
	w.t.Helper()
	w.Manager.mu.Lock()
	err := errors.Join(w.Manager.cpus.Check(w.cpuSets))
	if w.memory != nil {
		err = errors.Join(err, w.memory.Check(w.nodes))
	}
	w.Manager.mu.Unlock()
	if err != nil {
		w.t.Error(err)
	}
	users := map[string]devicemanager.Holding{}
	for _, h := range w.devices.Holdings() {
		for _, id := range h.IDs {
			if other, has := users[h.Resource+id]; has {
				w.t.Errorf("device %s belongs to %+v and %+v", id, other, h)
			}
			users[h.Resource+id] = h
		}
	}
}
