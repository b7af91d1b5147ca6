package worker

import (
	"context"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/event"
)

// Wanted is a pod as its source wants it, with the node's decisions about it.
type Wanted struct {
	// Pod is never changed but replaced by another object, so that equal pointers are the same version
	// of a pod. Get returns the same pointer until the version changes: workers rely on both.
	Pod      *v1.Pod
	Deleting bool          // it is to end and to be forgotten
	Grace    time.Duration // of the deletion
	Lives    int           // how often it has ended and was wanted again under its UID
	Waiting  types.UID     // the pod of the same name that has to be gone first; empty: none
	Admitted bool          // the node decided that it may run
	End      *plan.End     // the node refused or ended it; nil: it may run, once it is Admitted

	Reconsider bool // the reason for End may be gone: Admit is to decide again

	// Pod has the resources that the node allocated; Undecided and Pending are plan.Input's.
	Undecided bool
	Pending   plan.Pending
}

// Desired returns the wanted pods and decides about them.
type Desired interface {
	// Get only reads.
	Get(types.UID) (Wanted, bool)
	// Admit decides whether a pod may run on this node. After it has returned nil, Get returns the
	// decision: Admitted, or an End that is not to be reconsidered.
	Admit(context.Context, types.UID) error
	// Allocate decides whether an admitted pod may have other resources. After it has returned nil, Get
	// returns the decision, and is not Undecided.
	Allocate(context.Context, types.UID) error
	// Spoken reports whether a source has listed its pods since the agent's start. Until then its running pods
	// are left alone. The source of a pod that names none is "".
	Spoken(source string) bool
	// Forget is called for a Deleting pod when nothing is left of it.
	Forget(context.Context, types.UID) error
}

// View is the state of pods in the runtime. *observe.Observer is one.
type View interface {
	Pod(types.UID) plan.Observed
	Refresh(context.Context, types.UID) error
	// Reread is Refresh after the resources of running containers were changed.
	Reread(context.Context, types.UID) error
}

// Actor carries out actions.
type Actor interface {
	// Do carries out one action. It may take minutes, and returns soon after ctx has ended. It returns nil for
	// an action that is already done.
	Do(ctx context.Context, in plan.Input, a plan.Action) error
}

// Health returns the results of the probes of a pod's containers, by container ID. A container that is not in it has
// no probe. pod is nil if the pod is not wanted. It must not block.
type Health func(pod *v1.Pod, seen plan.Observed) map[string]plan.Health

// Config is what a Set needs.
type Config struct {
	Desired Desired
	View    View
	Actor   Actor
	Health  Health          // nil: there are no probes
	Events  event.Sink      // nil: events are dropped
	Changed func(types.UID) // the pod's status may have changed; must not block
	// Hooked reports whether the postStart hook of a container has returned; nil: none has.
	Hooked func(id string) bool
	// Stale reports whether a sandbox is to be replaced though it is ready: see plan.Input. Nil: none is.
	Stale func(sandbox string) bool
	// Off returns since when a pod has to end because the machine goes off, and how long it may take at most.
	// A zero time: it does not have to. Nil: no pod ever has to.
	Off func(*v1.Pod) (since time.Time, most time.Duration)
	// Sizes returns the resources of pods; nil: running containers are not resized.
	Sizes Sizes
	// Dead returns plan.Input's Dead. Nil: the last one that ended is kept of each container.
	Dead func() plan.Dead
	// CrashMax is plan.Input's.
	CrashMax time.Duration
	// Uptime returns how long the machine is up, independently of its clock; nil: the kernel's figure.
	Uptime func() time.Duration
	Log    *slog.Logger
}

// A Set holds the workers. Its methods may be called from any goroutine.
type Set struct {
	cfg    Config
	signal chan struct{} // capacity 1: some pod needs a worker

	mu      sync.Mutex
	workers map[types.UID]*worker
	pending map[types.UID]struct{} // poked, and without a worker
	since   time.Time              // when the first of pending was poked
}

// New starts nothing.
func New(cfg Config) *Set {
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	if cfg.Uptime == nil {
		cfg.Uptime = uptime
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard{}
	}
	if cfg.Hooked == nil {
		cfg.Hooked = func(string) bool { return false }
	}
	if cfg.Stale == nil {
		cfg.Stale = func(string) bool { return false }
	}
	if cfg.Off == nil {
		cfg.Off = func(*v1.Pod) (since time.Time, most time.Duration) { return }
	}
	if cfg.Sizes == nil {
		cfg.Sizes = func(*v1.Pod) (map[string]plan.Size, plan.Resources) { return nil, plan.Resources{} }
	}
	if cfg.Health == nil {
		cfg.Health = func(*v1.Pod, plan.Observed) map[string]plan.Health { return nil }
	}
	return &Set{cfg: cfg, signal: make(chan struct{}, 1), workers: map[types.UID]*worker{}, pending: map[types.UID]struct{}{}}
}

// Poke starts another round of a pod's worker: the wanted pod, or its state in the runtime, may have changed. It
// never blocks and may be called before Run.
func (s *Set) Poke(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[uid]; w != nil {
		w.poke()
		return
	}
	if len(s.pending) == 0 {
		s.since = time.Now()
	}
	s.pending[uid] = struct{}{}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Overdue returns for how long a pod has been waiting for a worker; 0: none waits.
func (s *Set) Overdue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return 0
	}
	return time.Since(s.since)
}

// PokeAll pokes every worker. It is called when a source has listed its pods for the first time.
func (s *Set) PokeAll() {
	for _, w := range s.all() {
		w.poke()
	}
}

// Retry ends the back-off of actions whose cause of failure may be gone: images have arrived, or the network is back.
func (s *Set) Retry() {
	for _, w := range s.all() {
		w.retry.Store(true)
		w.poke()
	}
}

// RetryPod is Retry for one pod: an object that it uses has changed.
func (s *Set) RetryPod(uid types.UID) {
	s.mu.Lock()
	if w := s.workers[uid]; w != nil {
		w.retry.Store(true)
	}
	s.mu.Unlock()
	s.Poke(uid)
}

// Restart restarts a container of a pod because a person requested it: see plan.Restart. It does nothing if the pod
// has no worker.
func (s *Set) Restart(uid types.UID, container string, ask plan.Restart) {
	s.mu.Lock()
	w := s.workers[uid]
	s.mu.Unlock()
	if w == nil {
		return
	}
	w.asks.add(container, ask)
	w.poke()
}

func (s *Set) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.workers))
}

// Input returns what the pod's worker decided on in its last round, with the actions that it then
// started. It is shared and never changed. Config.Changed announces the next one. A pod that no worker
// has looked at yet, or whose worker has ended, has an input without a wanted pod, only with what
// the runtime shows.
func (s *Set) Input(uid types.UID) plan.Input {
	s.mu.Lock()
	w := s.workers[uid]
	s.mu.Unlock()
	if w != nil {
		if in := w.published.Load(); in != nil {
			return *in
		}
	}
	return plan.Input{UID: uid, Seen: s.cfg.View.Pod(uid)}
}

// Run starts a worker for each poked pod. It returns once ctx and all workers
// have ended.
func (s *Set) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		s.mu.Lock()
		for uid := range s.pending {
			w := newWorker(uid, s)
			s.workers[uid] = w
			wg.Go(func() { s.work(ctx, w) })
		}
		clear(s.pending)
		s.mu.Unlock()
		select {
		case <-s.signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// work runs a worker until nothing of its pod is left. After a panic the worker of this pod starts again, with a
// delay.
func (s *Set) work(ctx context.Context, w *worker) {
	for n := 1; ; n++ {
		done := s.attempt(ctx, w)
		if done && s.drop(w) || ctx.Err() != nil {
			return
		}
		if done { // poked as it ended: the pod is wanted again, or its source has not removed it yet
			n = 0
			continue
		}
		select {
		case <-time.After(plan.RetryDelay(n)):
		case <-ctx.Done():
			return
		}
	}
}

func (s *Set) attempt(ctx context.Context, w *worker) (done bool) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.Error("pod worker panicked", "uid", w.uid, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return w.run(ctx)
}

// drop removes a worker whose pod is gone, unless it was poked again meanwhile.
func (s *Set) drop(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.wake:
		return false
	default:
		delete(s.workers, w.uid)
		return true
	}
}
