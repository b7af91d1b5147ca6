package pods

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/life/worker"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/dirty"
	"github.com/islet-edge/islet/internal/event"
)

// Desired provides the pods that the sources want. *desired.Desired implements it.
type Desired interface {
	Get(types.UID) (desired.Pod, bool)
	List() []desired.Pod // sorted
	ForEach(func(desired.Pod))
	Forget(context.Context, types.UID) error
}

// Store stores refusals, allocated resources and statuses. *store.Store implements it.
type Store interface {
	Rejections(context.Context) (map[types.UID]store.Admission, error)
	Reject(context.Context, types.UID, store.Admission) error
	RemoveRejection(context.Context, types.UID) error
	Allocations(context.Context) (map[types.UID]store.Allocation, error)
	Allocate(context.Context, map[types.UID]store.Allocation) error
	Statuses(context.Context) (map[types.UID]*v1.PodStatus, error)
	PutStatus(types.UID, *v1.PodStatus) error
	AddRewriter(table string, rewrite func(context.Context) error)
}

// Workers carry out the decisions. *worker.Set implements it.
type Workers interface {
	// Input returns the input of the last round of a pod's worker; see worker.Set.Input.
	Input(types.UID) plan.Input
	Poke(types.UID)
}

// Outbox sends statuses to a control plane. *outbox.Outbox implements it.
type Outbox interface {
	Put(*v1.Pod, *v1.PodStatus)
	// Finish reports that nothing of the pod is left on the node. The API server deletes its pod, and the outbox calls
	// Drop.
	Finish(context.Context, *v1.Pod) error
	// Has reports whether the API server has the pod, as far as the node knows.
	Has(types.UID) bool
}

// Admissions records decisions about pods for metrics. *figures.Figures implements it.
type Admissions interface {
	Admitted(*v1.Pod)
	CountRejection(reason string)
	CountPreemption(signal string) // the pod was ended for a critical pod, which lacked this resource
}

// Config configures Pods. The fields OnStatus, SandboxVersion, Devices, Resizes, Admissions, ShuttingDown and
// IsBarred may be nil.
type Config struct {
	Desired     Desired
	Store       Store
	Workers     Workers
	HasReported func(source string) bool                       // reports whether the source has listed its pods
	Sources     []string                                       // the names of all sources
	Node        func() admit.Node                              // returns the present state of the node
	Host        func() status.Host                             // returns the node's part of statuses
	OnStatus    func(in plan.Input, before, now *v1.PodStatus) // called with each new status
	// InRuntime returns the UIDs of the pods in the runtime, for metrics.
	InRuntime func() []types.UID
	// SandboxVersion returns the version of a pod from which the pod's sandbox was created. It returns nil if that
	// version has the same spec as the wanted pod, or if that version is unknown.
	SandboxVersion func(wanted *v1.Pod) *v1.Pod
	Devices        Devices
	Resizes        Resizes
	Events         event.Sink
	ShuttingDown   func() bool // reports whether the machine is about to shut down
	Admissions     Admissions
	// IsBarred reports whether an evicted pod must not run again yet.
	IsBarred func(types.UID) bool
	Log      *slog.Logger
}

// Pods contains the decisions about all pods, and the statuses of the pods. It is safe for
// concurrent use.
type Pods struct {
	c          Config
	outbox     Outbox                // nil on a node without a control plane
	nodeReader NodeReader            // nil on a node without a control plane
	dirty      *dirty.Set[types.UID] // the pods whose statuses Run has to compute again

	mu               sync.Mutex // never locked during I/O
	verdicts         map[types.UID]verdict
	freedCount       uint64 // number of changes after which a refused pod may fit
	refusedCount     uint64 // number of refusals that another pod may have caused
	states           map[types.UID]state
	version          uint64                // of the latest change of a state
	loaded           bool                  // Load has succeeded
	recordedVersions map[types.UID]*v1.Pod // the versions for which recordVersion recorded the ignored fields
	changeSignal     chan struct{}         // closed at the next change

	decisionLock chan struct{} // capacity 1: a lock on decisions about resources
	lastTrigger  string        // the cause of the last release of resources
}

// A state is the status of a pod.
type state struct {
	status        v1.PodStatus
	stopRequested time.Time // when its end was first requested; zero if it was not
	computedFor   *v1.Pod   // the version of the pod for which status was computed; nil if status is from before the restart
	version       uint64    // value of Pods.version at the last change
}

// New returns Pods without decisions or statuses.
func New(c Config) *Pods {
	if c.OnStatus == nil {
		c.OnStatus = func(plan.Input, *v1.PodStatus, *v1.PodStatus) {}
	}
	if c.InRuntime == nil {
		c.InRuntime = func() []types.UID { return nil }
	}
	if c.Admissions == nil {
		c.Admissions = noCounter{}
	}
	if c.ShuttingDown == nil {
		c.ShuttingDown = func() bool { return false }
	}
	if c.IsBarred == nil {
		c.IsBarred = func(types.UID) bool { return false }
	}
	if c.SandboxVersion == nil {
		c.SandboxVersion = func(*v1.Pod) *v1.Pod { return nil }
	}
	if c.Devices == nil {
		c.Devices = noDevices{}
	}
	if c.Resizes == nil {
		c.Resizes = noCounter{}
	}
	p := &Pods{
		c: c, dirty: dirty.New[types.UID](), changeSignal: make(chan struct{}), freedCount: 1, version: 1,
		decisionLock: make(chan struct{}, 1),
		verdicts:     map[types.UID]verdict{}, states: map[types.UID]state{}, recordedVersions: map[types.UID]*v1.Pod{},
	}
	c.Store.AddRewriter("statuses", p.rewriteStatuses)
	return p
}

// Connect sets the outbox and the Node in the API server. Both use Pods, so they are created after Pods. Connect is called once, before
// Load and Run. On a node without a control plane it is not called.
func (p *Pods) Connect(o Outbox, n NodeReader) { p.outbox, p.nodeReader = o, n }

// A NodeReader reads the Node from the API server. *node.Node implements it.
type NodeReader interface {
	// Refresh waits until the Node was read, and its labels and taints are in use. It returns an error if ctx ends before that.
	Refresh(ctx context.Context) error
}

// Load reads the decisions and statuses that were stored before the agent restarted. It gets the UIDs of the pods in
// the runtime. These pods were admitted, unless a refusal is stored.
func (p *Pods) Load(ctx context.Context, running []types.UID) error {
	rejected, err := p.c.Store.Rejections(ctx)
	if err != nil {
		return err
	}
	statuses, err := p.c.Store.Statuses(ctx)
	if err != nil {
		return err
	}
	given, err := p.c.Store.Allocations(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range running {
		p.verdicts[uid] = verdict{alloc: p.loadAllocation(uid, given)}
	}
	for uid, r := range rejected {
		was, runs := p.verdicts[uid]
		end := &plan.End{Reason: r.Reason, Message: r.Message, Grace: r.Grace, Disrupted: r.Disrupted}
		p.verdicts[uid] = verdict{end: end, ending: runs, alloc: was.alloc}
	}
	for uid, s := range statuses {
		p.version++
		p.states[uid] = state{status: *s, version: p.version}
		d, ok := p.c.Desired.Get(uid)
		if ok && s.Phase != v1.PodPending { // its ignored fields were recorded before the restart
			p.recordedVersions[uid] = d.Pod
		}
		if ok {
			p.verdicts[uid].alloc.restoreResize(d.Pod, s)
		}
		p.sendStatus(uid, s)
	}
	p.loaded = true
	p.wakeWatchers()
	return nil
}

// Get returns a wanted pod and the decisions about it. It makes no decision.
func (p *Pods) Get(uid types.UID) (worker.Wanted, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return worker.Wanted{}, false
	}
	w := worker.Wanted{Pod: d.Pod, Deleting: d.Deleting, Grace: d.Grace, Lives: d.Lives, Predecessor: d.Predecessor}
	if s := p.states[uid].status; d.Lives == 0 && !isTerminal(s.Phase) {
		w.Before = s
	}
	if w.End = p.finalEnd(d); w.End == nil {
		v, known := p.verdicts[uid]
		w.Admitted, w.End, w.Reconsider = known && v.end == nil && !v.admitting, p.shownEnd(uid, v.end), p.mustDecideAgain(d, v)
		w.Pod, w.Pending, w.Undecided = v.alloc.withAllocated(d.Pod), p.pendingResize(d, v.alloc), p.mustDecideResize(d, v)
		w.Resized = v.alloc != nil && v.alloc.stored
	}
	return w, true
}

// IsWanted reports whether a source wants the pod, or the pod is being deleted.
func (p *Pods) IsWanted(uid types.UID) bool {
	_, ok := p.c.Desired.Get(uid)
	return ok
}

// HasReported reports whether a source has listed its pods. For an empty name, it reports whether all sources have
// listed their pods.
func (p *Pods) HasReported(source string) bool {
	if source != "" {
		return p.c.HasReported(source)
	}
	for _, s := range p.c.Sources { // a pod without a known source may be from any of them
		if !p.c.HasReported(s) {
			return false
		}
	}
	return true
}

// Forget is called when nothing of a pod is left on the node. Without a control plane it calls Drop. With a control
// plane it calls Outbox.Finish, and the outbox calls Drop later.
func (p *Pods) Forget(ctx context.Context, uid types.UID) error {
	if p.outbox != nil {
		if d, ok := p.c.Desired.Get(uid); ok {
			p.refreshStatus(uid) // Run may not have sent its last status yet
			return p.outbox.Finish(ctx, d.Pod)
		}
	}
	return p.Drop(ctx, uid)
}

// Drop removes a pod, its status and the decisions about it. If a source wants a pod with the same UID again, the node
// decides about it again.
func (p *Pods) Drop(ctx context.Context, uid types.UID) error {
	if err := p.c.Desired.Forget(ctx, uid); err != nil {
		return err
	}
	_, again := p.c.Desired.Get(uid)
	p.mu.Lock()
	v, known := p.verdicts[uid]
	delete(p.verdicts, uid)
	if again && v.end != nil {
		v.freedAtDecision, v.alloc = 0, nil
		p.verdicts[uid] = v // its refusal is still stored
	}
	if s, known := p.states[uid]; known {
		p.recordResolved(plan.Input{}, &s.status, nil)
	}
	delete(p.states, uid)
	delete(p.recordedVersions, uid)
	p.wakeWatchers()
	p.mu.Unlock()
	if known && (v.end == nil || v.admitting || v.ending) || again {
		p.retryDecisions(podsRemoved)
	}
	return nil
}

// wakeWatchers closes the channel that Changed returned. The caller holds mu.
func (p *Pods) wakeWatchers() {
	close(p.changeSignal)
	p.changeSignal = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of a pod, a decision or a status.
func (p *Pods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changeSignal
}

// List returns every pod with its newest status.
func (p *Pods) List() []*v1.Pod {
	wanted := p.c.Desired.List()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*v1.Pod, 0, len(wanted))
	for _, d := range wanted {
		out = append(out, withStatus(d, p.states[d.Pod.UID]))
	}
	return out
}

// withStatus returns a copy of a wanted pod with its newest status.
func withStatus(d desired.Pod, s state) *v1.Pod {
	pod := *d.Pod
	pod.Status = s.status
	pod.Status.Phase = cmp.Or(pod.Status.Phase, v1.PodPending)
	if d.Deleting {
		seconds := int64(d.Grace / time.Second)
		pod.DeletionTimestamp = &metav1.Time{Time: s.stopRequested}
		pod.DeletionGracePeriodSeconds = &seconds
	}
	return &pod
}

// ForEach calls the function f with each wanted pod and its newest status, in no particular order. It makes
// no copies, because it is called often. The function must not keep a pointer to the status, must return
// soon, and must not call a method of Pods.
func (p *Pods) ForEach(f func(pod *v1.Pod, status *v1.PodStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status v1.PodStatus
	p.c.Desired.ForEach(func(d desired.Pod) {
		status = p.states[d.Pod.UID].status
		status.Phase = cmp.Or(status.Phase, v1.PodPending)
		f(d.Pod, &status)
	})
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
