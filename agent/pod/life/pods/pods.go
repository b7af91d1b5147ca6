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

// Desired is the pods that the sources want. *desired.Desired is one.
type Desired interface {
	Get(types.UID) (desired.Pod, bool)
	List() []desired.Pod // sorted
	Each(func(desired.Pod))
	Forget(context.Context, types.UID) error
}

// Store stores refusals, allocated resources and statuses. *store.Store is one.
type Store interface {
	Rejected(context.Context) (map[types.UID]store.Admission, error)
	Reject(context.Context, types.UID, store.Admission) error
	Admit(context.Context, types.UID) error
	Allocations(context.Context) (map[types.UID]store.Allocation, error)
	Allocate(context.Context, map[types.UID]store.Allocation) error
	Statuses(context.Context) (map[types.UID]*v1.PodStatus, error)
	PutStatus(types.UID, *v1.PodStatus) error
}

// Workers act on the decisions. *worker.Set is one.
type Workers interface {
	// Input returns the input of the last round of a pod's worker; see worker.Set.Input.
	Input(types.UID) plan.Input
	Poke(types.UID)
}

// Outbox sends statuses to a control plane. *outbox.Outbox is one.
type Outbox interface {
	Put(*v1.Pod, *v1.PodStatus)
	// Finish has the control plane delete a pod of which nothing is left here, and then calls Drop.
	Finish(context.Context, *v1.Pod) error
}

// Config is what Pods needs.
type Config struct {
	Desired Desired
	Store   Store
	Workers Workers
	Spoken  func(source string) bool                       // a source has listed its pods
	Sources []string                                       // all sources
	Node    func() admit.Node                              // the node as it is now
	Host    func() status.Host                             // the same for statuses
	Running func(in plan.Input, before, now *v1.PodStatus) // is called with each new status; nil: it is not
	// Made returns the pod that a wanted pod's sandbox was made for, if that has another spec; nil: it has the
	// same, or is not known.
	Made    func(wanted *v1.Pod) *v1.Pod
	Devices Devices // nil: there are none
	Resizes Resizes // nil: resizes are not counted
	Events  event.Sink
	Off     func() bool // the machine is about to go off; nil: it never is
	// Preempted is called for each pod that is ended for a critical one, with the resource that was lacking; nil: it
	// is not.
	Preempted func(signal string)
	// Barred reports whether a pod that was evicted may not run again yet; nil: it may.
	Barred func(types.UID) bool
	Log    *slog.Logger
}

// Pods is safe for concurrent use.
type Pods struct {
	c      Config
	outbox Outbox                // nil: the node stands alone
	dirty  *dirty.Set[types.UID] // whose status may be another

	mu       sync.Mutex // never held during I/O
	verdicts map[types.UID]verdict
	freed    uint64 // counts what may make a refused pod fit
	refused  uint64 // counts refusals that another pod may be the reason of
	states   map[types.UID]state
	noted    map[types.UID]*v1.Pod // the versions whose ignored fields were reported
	news     chan struct{}         // closed at the next change

	allocating chan struct{} // capacity 1: a lock on decisions about resources
	trigger    string        // of the last release
}

// A state is the status of a pod.
type state struct {
	status   v1.PodStatus
	stopping time.Time // when its end was first requested; zero: it was not
}

// New starts nothing.
func New(c Config) *Pods {
	if c.Running == nil {
		c.Running = func(plan.Input, *v1.PodStatus, *v1.PodStatus) {}
	}
	if c.Preempted == nil {
		c.Preempted = func(string) {}
	}
	if c.Off == nil {
		c.Off = func() bool { return false }
	}
	if c.Barred == nil {
		c.Barred = func(types.UID) bool { return false }
	}
	if c.Made == nil {
		c.Made = func(*v1.Pod) *v1.Pod { return nil }
	}
	if c.Devices == nil {
		c.Devices = noDevices{}
	}
	if c.Resizes == nil {
		c.Resizes = uncounted{}
	}
	return &Pods{
		c: c, dirty: dirty.New[types.UID](), news: make(chan struct{}), freed: 1, allocating: make(chan struct{}, 1),
		verdicts: map[types.UID]verdict{}, states: map[types.UID]state{}, noted: map[types.UID]*v1.Pod{},
	}
}

// Connect gives Pods the outbox, which is built on it. It is called once, before Load and Run. A node that
// stands alone has none.
func (p *Pods) Connect(o Outbox) { p.outbox = o }

// Load reads which pods the last run refused, and the last statuses. The pods that run, whose UIDs are given, were
// admitted.
func (p *Pods) Load(ctx context.Context, running []types.UID) error {
	rejected, err := p.c.Store.Rejected(ctx)
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
		p.verdicts[uid] = verdict{alloc: p.load(uid, given)}
	}
	for uid, r := range rejected {
		was, runs := p.verdicts[uid]
		end := &plan.End{Reason: r.Reason, Message: r.Message, Grace: r.Grace, Disrupted: r.Disrupted}
		p.verdicts[uid] = verdict{end: end, ending: runs, alloc: was.alloc}
	}
	for uid, s := range statuses {
		p.states[uid] = state{status: *s}
		d, ok := p.c.Desired.Get(uid)
		if ok && s.Phase != v1.PodPending { // the last run has reported its fields
			p.noted[uid] = d.Pod
		}
		if ok {
			p.verdicts[uid].alloc.resume(d.Pod, s)
		}
		p.send(uid, s)
	}
	return nil
}

// Get returns a wanted pod and the decisions about it. It only reads.
func (p *Pods) Get(uid types.UID) (worker.Wanted, bool) {
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return worker.Wanted{}, false
	}
	w := worker.Wanted{Pod: d.Pod, Deleting: d.Deleting, Grace: d.Grace, Lives: d.Lives, Waiting: d.Waiting}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.End = p.ended(d); w.End == nil {
		v, known := p.verdicts[uid]
		w.Admitted, w.End, w.Reconsider = known && v.end == nil && !v.coming, p.shownEnd(uid, v.end), p.reconsiders(d, v)
		w.Pod, w.Pending, w.Undecided = v.alloc.allocated(d.Pod), p.pending(d, v.alloc), p.undecided(d, v)
	}
	return w, true
}

// Wanted reports whether a pod is to run, or is on its way to its end.
func (p *Pods) Wanted(uid types.UID) bool {
	_, ok := p.c.Desired.Get(uid)
	return ok
}

// Spoken reports whether a source has listed its pods. The empty source stands for all sources.
func (p *Pods) Spoken(source string) bool {
	if source != "" {
		return p.c.Spoken(source)
	}
	for _, s := range p.c.Sources { // any may be the source of a pod that names none
		if !p.c.Spoken(s) {
			return false
		}
	}
	return true
}

// Forget drops a pod of which nothing is left, after its control plane was told.
func (p *Pods) Forget(ctx context.Context, uid types.UID) error {
	if p.outbox != nil {
		if d, ok := p.c.Desired.Get(uid); ok {
			p.refresh(uid) // Run may not have sent its last status yet
			return p.outbox.Finish(ctx, d.Pod)
		}
	}
	return p.Drop(ctx, uid)
}

// Drop is Forget for a pod whose control plane was told. If the pod is wanted again under the same UID, the node decides
// about it again.
func (p *Pods) Drop(ctx context.Context, uid types.UID) error {
	if err := p.c.Desired.Forget(ctx, uid); err != nil {
		return err
	}
	_, again := p.c.Desired.Get(uid)
	p.mu.Lock()
	v, known := p.verdicts[uid]
	delete(p.verdicts, uid)
	if again && v.end != nil {
		v.made, v.alloc = 0, nil
		p.verdicts[uid] = v // its refusal is still stored
	}
	delete(p.states, uid)
	delete(p.noted, uid)
	p.wakeWatchers()
	p.mu.Unlock()
	if known && (v.end == nil || v.coming || v.ending) || again {
		p.release(podsRemoved)
	}
	return nil
}

// wakeWatchers wakes the callers that watch the pods. The caller holds mu.
func (p *Pods) wakeWatchers() {
	close(p.news)
	p.news = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (p *Pods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.news
}

// List returns every pod with its newest status.
func (p *Pods) List() []*v1.Pod {
	wanted := p.c.Desired.List()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*v1.Pod, 0, len(wanted))
	for _, d := range wanted {
		pod := *d.Pod
		s := p.states[pod.UID]
		pod.Status = s.status
		pod.Status.Phase = cmp.Or(pod.Status.Phase, v1.PodPending)
		if d.Deleting {
			seconds := int64(d.Grace / time.Second)
			pod.DeletionTimestamp = &metav1.Time{Time: s.stopping}
			pod.DeletionGracePeriodSeconds = &seconds
		}
		out = append(out, &pod)
	}
	return out
}

// Look calls f with each wanted pod and its newest status, in no order. It makes no copies, because it is called often:
// f must not keep the status, must be short, and must not call p.
func (p *Pods) Look(f func(pod *v1.Pod, status *v1.PodStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status v1.PodStatus
	p.c.Desired.Each(func(d desired.Pod) {
		status = p.states[d.Pod.UID].status
		status.Phase = cmp.Or(status.Phase, v1.PodPending)
		f(d.Pod, &status)
	})
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
