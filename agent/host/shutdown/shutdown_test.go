package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func TestPeriods(t *testing.T) {
	for _, tt := range []struct {
		k    kubelet.KubeletConfiguration
		want []Period
	}{
		{},
		{kubelet.KubeletConfiguration{ShutdownGracePeriod: duration(30 * time.Second), ShutdownGracePeriodCriticalPods: duration(10 * time.Second)},
			[]Period{{0, 20 * time.Second}, {2_000_000_000, 10 * time.Second}}},
		{kubelet.KubeletConfiguration{ShutdownGracePeriod: duration(30 * time.Second)}, []Period{{0, 30 * time.Second}, {2_000_000_000, 0}}},
		{kubelet.KubeletConfiguration{ShutdownGracePeriodByPodPriority: []kubelet.ShutdownGracePeriodByPodPriority{
			{Priority: 10000, ShutdownGracePeriodSeconds: 10}, {Priority: 0, ShutdownGracePeriodSeconds: 60}, {Priority: 1000, ShutdownGracePeriodSeconds: 120}}},
			[]Period{{0, 60 * time.Second}, {1000, 120 * time.Second}, {10000, 10 * time.Second}}},
	} {
		if got := Periods(&tt.k); !slices.Equal(got, tt.want) {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}

func TestGroup(t *testing.T) {
	periods := []Period{{-5, 0}, {0, 0}, {1000, 0}, {2_000_000_000, 0}}
	for priority, want := range map[int32]int{-9: 0, -5: 0, -1: 0, 0: 1, 999: 1, 1000: 2, 1_999_999_999: 2, 2_000_000_000: 3, 2_000_001_000: 3} {
		if got := periodIndex(periods, aPod("a", priority)); got != want {
			t.Errorf("priority %d: period %d, want %d", priority, got, want)
		}
	}
	if got := periodIndex(periods, &v1.Pod{}); got != 1 {
		t.Errorf("a pod without a priority: period %d", got)
	}
}

func aPod(name string, priority int32) *v1.Pod {
	return podtest.New(name, podtest.Namespace(""), podtest.Priority(priority))
}

// A world is a machine with pods. The test decides when the pods end.
type world struct {
	*Shutdown
	dir  string
	meta map[string]string

	mu       sync.Mutex
	rests    map[types.UID]bool
	log      strings.Builder // of the last agent, to be read after synctest.Wait
	happened []string
	told     func(bool, func())
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened = append(w.happened, fmt.Sprintf(format, args...))
}

func (w *world) record(e eventtest.Event) { w.note("%s: %s", e.Reason, e.Message) }

func (w *world) Meta(_ context.Context, key string) (string, bool, error) {
	v, ok := w.meta[key]
	return v, ok, nil
}

func (w *world) SetMeta(_ context.Context, key, value string) error { w.meta[key] = value; return nil }

// Run implements Host. The test decides when the machine shuts down.
func (w *world) Run(ctx context.Context, _ time.Duration, told func(bool, func())) {
	w.mu.Lock()
	w.told = told
	w.mu.Unlock()
	<-ctx.Done()
}

func (w *world) pods() []*v1.Pod {
	return []*v1.Pod{aPod("web", 0), aPod("batch", -10), aPod("dns", 2_000_000_000), aPod("etcd", 2_000_001_000)}
}

func newWorld(t *testing.T) *world {
	w := &world{dir: t.TempDir(), meta: map[string]string{}, rests: map[types.UID]bool{}}
	w.open(t)
	return w
}

// open creates the Shutdown as a starting agent does. The returned function ends this agent.
func (w *world) open(t *testing.T) (kill func()) {
	t.Helper()
	var err error
	w.Shutdown, err = New(t.Context(), Config{
		Periods: []Period{{0, 20 * time.Second}, {2_000_000_000, 10 * time.Second}}, Host: w, File: filepath.Join(w.dir, "shutdown"), Meta: w, Pods: w.pods,
		AtRest: func(uid types.UID) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.rests[uid] },
		Poke: func(uid types.UID) {
			for _, p := range w.pods() {
				since, most := w.PodTermination(p)
				if p.UID == uid {
					w.note("%s %v %v", uid, !since.IsZero(), most)
				}
			}
		},
		Changed: func() { w.note("going %v", w.InProgress()) }, Extend: func(d time.Duration) error { w.note("extend %v", d); return nil }, Events: eventtest.Sink(w.record), Log: slog.New(slog.NewJSONHandler(&w.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Shutdown.Run(ctx) }()
	return func() { stop(); <-ended }
}

func value(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := c.(prometheus.Metric).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.Gauge.GetValue()
}

func (w *world) rest(uids ...types.UID) {
	w.mu.Lock()
	for _, uid := range uids {
		w.rests[uid] = true
	}
	w.mu.Unlock()
	w.WorkerProgressed()
	synctest.Wait()
}

func (w *world) logind(off bool) {
	w.mu.Lock()
	told := w.told
	w.mu.Unlock()
	told(off, func() { w.note("released") })
	synctest.Wait()
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.happened, want) {
		t.Errorf("happened:\n%s\nwant:\n%s", strings.Join(w.happened, "\n"), strings.Join(want, "\n"))
	}
	w.happened = nil
}

var begun = []string{"Shutdown: Shutdown manager detected shutdown event", "extend 30s", "going true"}

// TestOrder checks that critical pods are ended after all other pods. The machine may shut down when all pods have ended.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		synctest.Wait()
		if since, _ := w.PodTermination(aPod("web", 0)); w.InProgress() || !since.IsZero() || w.NotReady() != "" {
			t.Error("a shutdown began before logind's signal")
		}
		w.logind(true)
		w.expect(t, append(slices.Clone(begun), "web true 20s", "batch true 20s")...)
		if w.NotReady() != "node is shutting down" {
			t.Errorf("%q", w.NotReady())
		}
		w.rest("web")
		w.expect(t)
		w.rest("batch")
		w.expect(t, "dns true 10s", "etcd true 10s")
		w.rest("dns", "etcd")
		w.expect(t, "released")
		w.logind(true) // logind repeats its signal
		w.expect(t, "released")
	})
}

// TestLate checks that pods that do not end delay the shutdown until their grace period has passed, and not longer. The log names them.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		synctest.Wait()
		begin := time.Now()
		if configured, err := w.Begin(t.Context()); err != nil || !configured {
			t.Fatal(configured, err)
		}
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		for _, p := range w.pods() {
			if !strings.Contains(w.log.String(), `"`+p.Namespace+"/"+p.Name+`"`) {
				t.Errorf("nothing tells that %s was late: %s", p.Name, w.log.String())
			}
		}
		for i, want := range []float64{float64(begin.Unix()), float64(begin.Add(30 * time.Second).Unix())} {
			if got := value(t, w.Collectors()[i]); got != want {
				t.Errorf("metric %d: %v, want %v", i, got, want)
			}
		}
	})
}

// TestCancelled checks that the pods run again after logind has cancelled a shutdown. If an operator began the shutdown, logind cannot
// cancel it.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		synctest.Wait()
		w.logind(true)
		w.happened = nil
		w.logind(false)
		w.expect(t, "Shutdown: Shutdown manager detected shutdown cancellation", "going false", "web false 0s", "batch false 0s",
			"dns false 0s", "etcd false 0s")
		answer := make(chan error, 1)
		go func() { _, err := w.Begin(t.Context()); answer <- err }()
		synctest.Wait()
		if w.logind(false); !w.InProgress() {
			t.Error("logind cancelled a shutdown that it had not begun")
		}
		if err := w.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err == nil || w.InProgress() {
			t.Errorf("going %v, %v", w.InProgress(), err)
		}
		w.rest("web", "batch", "dns", "etcd") // the pods end, and the shutdown begins again
		if _, err := w.Begin(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestKilled checks that a restarted agent continues an unfinished shutdown. After a reboot, the agent does not continue it.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{dir: t.TempDir(), meta: map[string]string{}, rests: map[types.UID]bool{}}
		kill := w.open(t)
		synctest.Wait()
		w.logind(true)
		w.rest("web", "batch")
		w.happened = nil
		kill()
		time.Sleep(4 * time.Second)
		kill = w.open(t)
		synctest.Wait()
		since, most := w.PodTermination(aPod("dns", 2_000_000_000))
		if !w.InProgress() || time.Since(since) != 4*time.Second || most != 10*time.Second {
			t.Errorf("going %v, since %v, %v", w.InProgress(), time.Since(since), most)
		}
		w.logind(true)
		w.expect(t)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		w.expect(t, "released")
		kill()
		kill = w.open(t)
		if configured, err := w.Begin(t.Context()); !configured || err != nil { // the grace periods of all pods have passed
			t.Error(configured, err)
		}
		kill()
		w.dir = t.TempDir() // a reboot deletes the run directory
		w.open(t)
		if w.InProgress() {
			t.Error("the shutdown continues after a reboot")
		}
		if end := value(t, w.Collectors()[1]); end == 0 {
			t.Error("the metrics were lost at the reboot")
		}
	})
}

// TestUndoneWhileDown checks that a shutdown ends if logind reports its cancellation to a restarted agent.
func TestUndoneWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{dir: t.TempDir(), meta: map[string]string{}, rests: map[types.UID]bool{}}
		kill := w.open(t)
		synctest.Wait()
		w.logind(true)
		kill()
		w.open(t)
		synctest.Wait()
		if w.logind(false); w.InProgress() {
			t.Error("the shutdown continues")
		}
	})
}

// TestNotConfigured checks that nothing happens if no grace period is configured.
func TestNotConfigured(t *testing.T) {
	s, err := New(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if configured, err := s.Begin(t.Context()); configured || err != nil {
		t.Error(configured, err)
	}
	if err := errors.Join(s.Run(t.Context()), s.Cancel(t.Context())); err != nil || s.InProgress() {
		t.Error(err)
	}
}
