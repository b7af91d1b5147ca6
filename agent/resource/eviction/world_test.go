package eviction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/metrics/headroom"
)

// A world is a machine with pods that use its resources.
type world struct {
	*Eviction
	cfg kubelet.KubeletConfiguration

	lines   bytes.Buffer // lines of the log
	mu      sync.Mutex
	free    uint64 // free MiB of 1000
	disk    uint64
	pods    []Candidate
	ends    map[types.UID]plan.End
	after   time.Duration // duration of a pod's end
	cleared map[types.UID]bool
	garbage uint64 // MiB of reclaimable data
	log     []string
	looks   int
	lights  int
	broken  bool
	wake    chan struct{}
	armed   [2]uint64
	deaf    bool
	slow    time.Duration // duration of a count of files, for one pod or for all
	relief  uint64        // MiB that become free during a measurement of the pods
}

func newWorld(t *testing.T, change func(*world)) *world {
	w := &world{
		free: 500, disk: 500, ends: map[types.UID]plan.End{}, cleared: map[types.UID]bool{},
		wake: make(chan struct{}, 1), after: time.Second,
	}
	w.cfg = kubelet.KubeletConfiguration{
		EvictionHard:                     map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
		EvictionPressureTransitionPeriod: metav1.Duration{Duration: 5 * time.Minute},
		LocalStorageCapacityIsolation:    new(true),
	}
	change(w)
	var err error
	w.Eviction, err = New(Config{
		Kubelet: &w.cfg, Reader: w, Figures: w, Pods: w, Reclaim: w, Events: w.events(), Counter: w,
		Watch: func() Waker { return w }, Changed: func() { w.note("changed") },
		Log: slog.New(slog.NewTextHandler(&w.lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// start starts Run. Run returns when the test ends.
func (w *world) start(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// checkEvents checks the log entries since the previous call.
func (w *world) checkEvents(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.log, want) {
		t.Errorf("\n%s\nnot\n%s", strings.Join(w.log, "\n"), strings.Join(want, "\n"))
	}
	w.log = nil
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Now(context.Context) (r headroom.Room, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.broken {
		return headroom.Room{}, errors.New("no figures")
	}
	disk := headroom.Disk{Device: 1, Bytes: headroom.Amount{Free: w.disk * mib, Total: 1000 * mib}}
	return headroom.Room{
		At: time.Now(), Memory: headroom.Amount{Free: w.free * mib, Total: 1000 * mib}, Node: disk, Image: disk,
		Container: disk,
	}, nil
}

func (w *world) Memory(context.Context) (machine, pods headroom.Amount, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lights++
	return headroom.Amount{Free: w.free * mib, Total: 1000 * mib}, headroom.Amount{}, nil
}

func (w *world) stats() (out []stats.PodStats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.pods {
		out = append(out, *c.Stats)
	}
	return out
}

func (w *world) Summary(ctx context.Context, short bool) (*stats.Summary, error) {
	if short {
		return nil, errors.New("not asked for")
	}
	w.waitCountTime(ctx)
	return &stats.Summary{Pods: w.stats()}, nil
}
func (w *world) Processes(context.Context) ([]stats.PodStats, error) {
	w.set(func() { w.free += w.relief })
	return w.stats(), nil
}

// waitCountTime waits as long as a count of files takes.
func (w *world) waitCountTime(ctx context.Context) {
	if w.slow > 0 {
		select {
		case <-time.After(w.slow):
		case <-ctx.Done():
		}
	}
}

func (w *world) Storage(ctx context.Context, p *v1.Pod, _ time.Duration) (*stats.PodStats, error) {
	w.note("measure %s", p.Name)
	w.waitCountTime(ctx)
	for _, s := range w.stats() {
		if s.PodRef.UID == string(p.UID) {
			return &s, nil
		}
	}
	return nil, errors.New("gone")
}

func (w *world) Active() (out []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.pods {
		if _, ends := w.ends[c.Pod.UID]; !ends {
			out = append(out, c.Pod)
		}
	}
	return out
}

func (w *world) Evict(_ context.Context, uid types.UID, end plan.End) bool {
	w.note("evict %s %s %v", uid, end.Grace, end.Disrupted)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[uid] = end
	time.AfterFunc(w.after, func() {
		w.set(func() {
			i := slices.IndexFunc(w.pods, func(c Candidate) bool { return c.Pod.UID == uid })
			if m := w.pods[i].Stats.Memory; m != nil {
				w.free += *m.WorkingSetBytes / mib
			}
			if s := w.pods[i].Stats.EphemeralStorage; s != nil {
				w.disk += *s.UsedBytes / mib
			}
			w.pods = slices.Delete(w.pods, i, i+1)
			w.cleared[uid] = true
		})
		w.NotifyPodChange()
	})
	return true
}

func (w *world) ResourcesReleased(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cleared[uid]
}
func (w *world) NodeChanged() { w.note("pods may ask again") }

func (w *world) ReclaimContainers(context.Context) error {
	w.note("reclaim containers")
	return errors.New("one is busy")
}

func (w *world) ReclaimImages(context.Context) error {
	w.note("reclaim images")
	w.set(func() { w.disk, w.garbage = w.disk+w.garbage, 0 })
	return nil
}

// events records the events of the world. Only an eviction's event has annotations.
type events struct {
	eventtest.Sink
	*world
}

func (w *world) events() events {
	return events{eventtest.Sink(func(e eventtest.Event) { w.note("node: %s %s", e.Reason, e.Message) }), w}
}

func (w events) PodWith(a map[string]string, p *v1.Pod, kind, reason, message string) {
	eventtest.RecordEvent(kind, reason, message)
	w.note("%s: %s %s", p.Name, reason, a[starvedResource])
}
func (w *world) Evicted(signal string)              { w.note("count %s", signal) }
func (w *world) Age(signal string, _ time.Duration) { w.note("age of %s", signal) }

func (w *world) Wake() <-chan struct{} { return w.wake }
func (w *world) Coverage() Coverage {
	if w.deaf {
		return NoEvents
	}
	return UseEvents
}
func (w *world) Arm(machine, pods uint64) {
	w.set(func() { w.armed = [2]uint64{machine / mib, pods / mib} })
}
func (w *world) Close() { w.note("closed") }
