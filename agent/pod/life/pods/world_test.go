package pods

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

// A world is a node that has Pods and a real store.
type world struct {
	*Pods
	store   *store.Store
	desired *desired.Desired
	path    string

	mu     sync.Mutex
	poked  map[types.UID]int
	events []string
	broken bool // the store returns errors
	cpu    string
	labels map[string]string
	inputs map[types.UID]plan.Input
	made   map[types.UID]*v1.Pod // specs of the sandboxes
	counts []string

	resolutions []string // results of deferred resizes

	preempted []string // resources that were the reasons for preemptions
	decided   []string // admissions and rejections
	barred    bool     // evicted pods must not run again

	unlabelled   error // reason why the host cannot enforce SELinux labels
	strictGroups bool  // the runtime supports supplementalGroupsPolicy: Strict
}

func newWorld(t testing.TB) *world {
	w := &world{path: filepath.Join(t.TempDir(), "islet.db"), cpu: "4", poked: map[types.UID]int{}, inputs: map[types.UID]plan.Input{}}
	w.startAgent(t)
	t.Cleanup(func() { w.store.Close() })
	return w
}

// startAgent starts an agent with the state that the previous agent stored.
func (w *world) startAgent(t testing.TB, running ...types.UID) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	if w.store, err = store.Open(t.Context(), w.path, log); err != nil {
		t.Fatal(err)
	}
	if w.desired, err = desired.New(desired.Config{Store: w.store, Poke: func(types.UID) {}, Log: log}); err != nil {
		t.Fatal(err)
	}
	w.Pods = New(Config{
		Desired: w.desired, Store: shaky{w.store, w}, Workers: w, HasReported: w.desired.HasReported, Sources: []string{desired.File, desired.API},
		Node: func() admit.Node {
			return admit.Node{Labels: w.labels, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse(w.cpu)}, SELinux: w.unlabelled,
				StrictGroups: w.strictGroups}
		},
		Host: func() status.Host { return status.Host{} }, SandboxVersion: func(p *v1.Pod) *v1.Pod { return w.made[p.UID] }, Resizes: w, Events: eventtest.Sink(w.record), Log: log,
		IsBarred:   func(types.UID) bool { return w.barred },
		Admissions: admissions{w},
	})
	if err := w.Load(t.Context(), running); err != nil {
		t.Fatal(err)
	}
}

// admissions records the decisions about pods.
type admissions struct{ w *world }

func (a admissions) note(to *[]string, text string) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	*to = append(*to, text)
}

func (a admissions) Admitted(pod *v1.Pod)          { a.note(&a.w.decided, "admitted "+pod.Name) }
func (a admissions) CountRejection(reason string)  { a.note(&a.w.decided, "rejected "+reason) }
func (a admissions) CountPreemption(signal string) { a.note(&a.w.preempted, signal) }

func (w *world) restart(t *testing.T, running ...types.UID) {
	t.Helper()
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.startAgent(t, running...)
}

// A shaky is a store whose writes can fail.
type shaky struct {
	*store.Store
	w *world
}

var errDisk = errors.New("disk full")

func (s shaky) Reject(ctx context.Context, uid types.UID, a store.Admission) error {
	if s.w.broken {
		return errDisk
	}
	return s.Store.Reject(ctx, uid, a)
}

func (s shaky) RemoveRejection(ctx context.Context, uid types.UID) error {
	if s.w.broken {
		return errDisk
	}
	return s.Store.RemoveRejection(ctx, uid)
}

func (s shaky) Allocate(ctx context.Context, given map[types.UID]store.Allocation) error {
	if s.w.broken {
		return errDisk
	}
	return s.Store.Allocate(ctx, given)
}

func (w *world) Poke(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poked[uid]++
}

func (w *world) Input(uid types.UID) plan.Input {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inputs[uid]
}

// Status returns the newest status of a pod.
func (w *world) Status(uid types.UID) v1.PodStatus {
	w.Pods.mu.Lock()
	defer w.Pods.mu.Unlock()
	return w.states[uid].status
}

func (w *world) record(e eventtest.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e.Type+" "+e.Pod.Name+" "+e.Reason)
}

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "pods")) }

func aPod(name, cpu string, port int32) *v1.Pod {
	p := podtest.New(name, podtest.Requests(podtest.CPUAndMemory(cpu, "")))
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, ContainerPort: 80}}
	return p
}

func (w *world) setPods(t testing.TB, source string, pods ...*v1.Pod) {
	t.Helper()
	var listed []desired.SourcePod
	for _, p := range pods {
		listed = append(listed, desired.SourcePod{Pod: p})
	}
	if err := w.desired.Set(t.Context(), source, listed, nil); err != nil {
		t.Fatal(err)
	}
}

// verdict returns the decision about a pod as a worker reads it. It is the reason for a rejection, "admitted", or "" if there is no
// decision.
func (w *world) verdict(uid types.UID) string {
	switch got, _ := w.Get(uid); {
	case got.Admitted:
		return "admitted"
	case got.End != nil && got.Reconsider:
		return got.End.Reason + "?"
	case got.End != nil:
		return got.End.Reason
	}
	return ""
}

func (w *world) checkDecision(t *testing.T, uid types.UID, want string) {
	t.Helper()
	if got := w.verdict(uid); got != want {
		t.Errorf("%s: %q, not %q", uid, got, want)
	}
}

func (w *world) admit(t *testing.T, uid types.UID, want string) {
	t.Helper()
	if err := w.Admit(t.Context(), uid); err != nil {
		t.Errorf("admit %s: %v", uid, err)
	}
	w.checkDecision(t, uid, want)
}

func (w *world) checkEvents(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.events, want) {
		t.Errorf("events %q, not %q", w.events, want)
	}
	w.events = nil
}
