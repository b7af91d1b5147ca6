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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/event"
)

// Wanted contains a pod as its source wants it, and the node's decisions about the pod.
type Wanted struct {
	// Pod contains the resources that the node allocated. The object is immutable. Get returns the same pointer until
	// the version of the pod or its resources change, and then a new pointer. Workers compare the pointers.
	Pod         *v1.Pod
	Deleting    bool          // the pod is to end, and then to be forgotten
	Grace       time.Duration // grace period of the deletion
	Lives       int           // how many times the pod has ended and was wanted again under its UID
	Predecessor types.UID     // an earlier pod of the same name, which must be removed first; empty if there is none
	Admitted    bool          // the node decided that the pod may run
	End         *plan.End     // set if the node refused or ended the pod

	Reconsider bool // Admit has to decide again, because the reason for End may no longer apply

	// See plan.Input for Undecided and Pending.
	Undecided bool
	Pending   plan.Pending

	// Started is the start time in the stored status of the pod. It is nil if the status has none, and if the status may be that of an
	// earlier life.
	Started *metav1.Time

	Resized bool // the node has allocated other resources to the pod, before the agent started; see plan.Input
}

// Desired returns the wanted pods and decides about them. *pods.Pods implements it.
type Desired interface {
	// Get returns a wanted pod. It makes no decision.
	Get(types.UID) (Wanted, bool)
	// Admit decides whether a pod may run on this node. After Admit has returned nil, Get returns the decision:
	// Admitted is true, or End is set and Reconsider is false.
	Admit(context.Context, types.UID) error
	// Allocate decides whether an admitted pod may have other resources. After Allocate has returned nil, Get returns
	// the decision, and Undecided is false.
	Allocate(context.Context, types.UID) error
	// HasReported reports whether a source has listed its pods since the agent started. Until then, running pods of
	// this source are not ended. For an empty name, it reports whether all sources have listed their pods.
	HasReported(source string) bool
	// Forget is called when nothing is left of a pod that is being deleted.
	Forget(context.Context, types.UID) error
}

// View returns the last known state of pods in the runtime. *observe.Observer implements it.
type View interface {
	Pod(types.UID) plan.Observed
	// Begin is called before an action that may change the runtime. The returned function is called after Refresh or Reread.
	Begin(types.UID) (end func())
	Refresh(context.Context, types.UID) error
	// Reread is called instead of Refresh after the resources of running containers were changed.
	Reread(context.Context, types.UID) error
}

// Actor carries out actions.
type Actor interface {
	// Do carries out one action. It may take minutes, but returns soon after ctx has ended. It returns nil if the
	// action was already carried out.
	Do(ctx context.Context, in plan.Input, a plan.Action) error
}

// Health returns the results of the probes of a pod's containers, by container ID. Containers without probes have no
// entry. If no source wants the pod, the parameter pod is nil. Health must not block.
type Health func(pod *v1.Pod, seen plan.Observed) map[string]plan.Health

// Config configures a Set. Health and the fields below it may be nil, except Log.
type Config struct {
	Desired Desired
	View    View
	Actor   Actor
	Health  Health
	Events  event.Sink
	Changed func(types.UID) // called when the pod's status may have changed; must not block
	// HookReturned reports whether the postStart hook of a container has returned.
	HookReturned func(id string) bool
	// Interruption returns the reason why the node interrupted a container, or zero if the node did not; see plan.Interruption.
	Interruption func(id string) plan.Interruption
	// IsStale reports whether a ready sandbox has to be replaced; see plan.Input.Stale.
	IsStale func(sandbox string) bool
	// ShutdownTermination returns the time at which a pod began to end because of a shutdown of the machine,
	// and the maximum grace period of the pod. The time is zero if the pod does not have to end.
	ShutdownTermination func(*v1.Pod) (since time.Time, most time.Duration)
	// Sizes returns the allocated resources of a pod. If Sizes is nil, running containers are not resized.
	Sizes Sizes
	// DeadLimit returns plan.Input.DeadLimit. If DeadLimit is nil, the zero value is used.
	DeadLimit func() plan.DeadLimit
	// CrashMax is the maximum crash back-off; see plan.Input.CrashMax.
	CrashMax time.Duration
	// Uptime returns the time since the machine booted, which must not depend on the clock of the machine. If Uptime
	// is nil, the kernel's CLOCK_BOOTTIME is used.
	Uptime func() time.Duration
	Log    *slog.Logger
}

// A Set contains the workers of all pods. Its methods may be called from any goroutine.
type Set struct {
	cfg    Config
	signal chan struct{} // capacity 1; wakes Run when pending is not empty

	mu           sync.Mutex
	workers      map[types.UID]*worker
	pending      map[types.UID]struct{} // pods that were poked and have no worker yet
	pendingSince time.Time              // when the first pod of pending was poked
}

// New returns a Set without workers.
func New(cfg Config) *Set {
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	if cfg.Uptime == nil {
		cfg.Uptime = systemUptime
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard{}
	}
	if cfg.HookReturned == nil {
		cfg.HookReturned = func(string) bool { return false }
	}
	if cfg.Interruption == nil {
		cfg.Interruption = func(string) plan.Interruption { return 0 }
	}
	if cfg.IsStale == nil {
		cfg.IsStale = func(string) bool { return false }
	}
	if cfg.ShutdownTermination == nil {
		cfg.ShutdownTermination = func(*v1.Pod) (since time.Time, most time.Duration) { return }
	}
	if cfg.Sizes == nil {
		cfg.Sizes = func(*v1.Pod) (map[string]plan.Size, plan.Resources) { return nil, plan.Resources{} }
	}
	if cfg.Health == nil {
		cfg.Health = func(*v1.Pod, plan.Observed) map[string]plan.Health { return nil }
	}
	return &Set{cfg: cfg, signal: make(chan struct{}, 1), workers: map[types.UID]*worker{}, pending: map[types.UID]struct{}{}}
}

// Poke causes another round of a pod's worker. It is called when the wanted pod, or its state in the runtime, may have
// changed. If the pod has no worker, Run starts one. Poke does not block and may be called before Run.
func (s *Set) Poke(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[uid]; w != nil {
		w.poke()
		return
	}
	if len(s.pending) == 0 {
		s.pendingSince = time.Now()
	}
	s.pending[uid] = struct{}{}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// StartDelay returns how long a poked pod has been waiting for Run to start its worker. It is 0 if no pod waits.
func (s *Set) StartDelay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return 0
	}
	return time.Since(s.pendingSince)
}

// PokeAll pokes every worker. It is called when a source has listed its pods for the first time.
func (s *Set) PokeAll() {
	for _, w := range s.listWorkers() {
		w.poke()
	}
}

// Retry ends the back-off of failed actions that may now succeed, for example because images were imported or
// the network is ready again.
func (s *Set) Retry() {
	for _, w := range s.listWorkers() {
		w.endBackoffs.Store(true)
		w.endSandboxBackoff.Store(true)
		w.poke()
	}
}

// RetryPod is like Retry for one pod. It is called when an object that the pod uses has changed. It does not
// retry a sandbox that the runtime could not run. An object cannot be the cause of this failure, and users
// who may change objects must not be able to run CNI plugins without a pause. If the pod has no worker, Run
// starts one.
func (s *Set) RetryPod(uid types.UID) {
	s.mu.Lock()
	if w := s.workers[uid]; w != nil {
		w.endBackoffs.Store(true)
	}
	s.mu.Unlock()
	s.Poke(uid)
}

// Restart restarts a container of a pod at the request of a user; see plan.Restart. It does nothing if the
// pod has no worker.
func (s *Set) Restart(uid types.UID, container string, request plan.Restart) {
	s.mu.Lock()
	w := s.workers[uid]
	s.mu.Unlock()
	if w == nil {
		return
	}
	w.requests.add(container, request)
	w.poke()
}

func (s *Set) listWorkers() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.workers))
}

// Input returns the input of the last round of the pod's worker, including the actions that the round started. The maps
// in it are shared and must not be changed. Config.Changed is called after each round. If the pod's worker has had no
// round yet or has ended, only UID and Observed are set.
func (s *Set) Input(uid types.UID) plan.Input {
	s.mu.Lock()
	w := s.workers[uid]
	s.mu.Unlock()
	if w != nil {
		if in := w.published.Load(); in != nil {
			return *in
		}
	}
	return plan.Input{UID: uid, Observed: s.cfg.View.Pod(uid)}
}

// Run starts a worker for each poked pod. It returns once ctx and all workers have ended.
func (s *Set) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		s.mu.Lock()
		for uid := range s.pending {
			w := newWorker(uid, s)
			s.workers[uid] = w
			wg.Go(func() { s.runWorker(ctx, w) })
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

// runWorker runs a worker until nothing of its pod is left. If the worker panics, it is started again after a delay.
func (s *Set) runWorker(ctx context.Context, w *worker) {
	for n := 1; ; n++ {
		done := s.runRecovered(ctx, w)
		if done && s.removeDone(w) || ctx.Err() != nil {
			return
		}
		if done { // it was poked while it ended: the pod is wanted again, or its source has not removed it yet
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

func (s *Set) runRecovered(ctx context.Context, w *worker) (done bool) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.Error("pod worker panicked", "uid", w.uid, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return w.run(ctx)
}

// removeDone removes a worker that is done, and returns true. If the worker was poked meanwhile, it
// returns false.
func (s *Set) removeDone(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.wakeSignal:
		return false
	default:
		delete(s.workers, w.uid)
		return true
	}
}
