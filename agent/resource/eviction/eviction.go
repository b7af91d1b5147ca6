package eviction

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/metrics/headroom"
)

// ResourceReader measures the free resources of the machine. *headroom.Reader implements it.
type ResourceReader interface {
	// Now measures the free amount of each resource. Amounts that are unknown are missing, and the error explains
	// them.
	Now(context.Context) (headroom.Room, error)
	// Memory measures the free memory of the machine, and how much memory the pods may still use.
	Memory(context.Context) (machine, pods headroom.Amount, err error)
}

// Figures measures the resource usage of pods. *usage.Usage implements it.
type Figures interface {
	// Summary returns the figures of all pods, including figures of their files. Counting files may take long.
	Summary(ctx context.Context, short bool) (*stats.Summary, error)
	// Processes returns the memory use and the number of processes of all pods.
	Processes(context.Context) ([]stats.PodStats, error)
	// Storage returns the figures of the files of one pod. The parameter age is the maximum age of the figures of
	// volumes.
	Storage(ctx context.Context, pod *v1.Pod, age time.Duration) (*stats.PodStats, error)
}

// Pods lists and evicts the pods of the node. *pods.Pods implements it.
type Pods interface {
	// Active returns the admitted pods that have not ended, with the resources that the node has allocated to them. Callers must not
	// change them.
	Active() []*v1.Pod
	// Evict stores that a pod is evicted, and returns before the pod has ended. It returns false if the pod was removed
	// or is already ending.
	Evict(context.Context, types.UID, plan.End) bool
	// ResourcesReleased reports whether all resources of an evicted pod have been released.
	ResourcesReleased(types.UID) bool
	// NodeChanged evaluates rejected pods again.
	NodeChanged()
}

// A Reclaimer frees disk space without ending a pod: it removes ended containers and unused images.
type Reclaimer interface {
	ReclaimContainers(context.Context) error
	ReclaimImages(context.Context) error
}

// Events records events. The event of an eviction has annotations. *outbox.Events implements it.
type Events interface {
	event.Sink
	PodWith(annotations map[string]string, pod *v1.Pod, eventType, reason, message string)
}

// Counter counts evictions. *figures.Evictions implements it.
type Counter interface {
	Evicted(signal string)
	Age(signal string, age time.Duration) // maximum age of the figures on which an eviction is based
}

// Waker reports a possible shortage of memory. *Watch implements it.
type Waker interface {
	Wake() <-chan struct{}
	Coverage() Coverage
	Arm(machine, pods uint64)
	Close()
}

// Config configures New.
type Config struct {
	Kubelet *kubelet.KubeletConfiguration // with all defaults set
	Reader  ResourceReader
	Figures Figures
	Pods    Pods
	Reclaim Reclaimer // nil disables reclaiming
	Events  Events
	Counter Counter
	Watch   func() Waker // opens the Waker when Run begins
	PodsDir string       // parent of all pods' directories, for truncating termination logs; if it is empty, none are truncated
	Hold    bool         // only report the conditions; evict no pod and reclaim nothing
	Changed func()       // called when the node's conditions change; it must not block
	Log     *slog.Logger
}

// An Eviction evicts pods under node pressure. All methods except Run may be called concurrently.
//
// The fields from thresholds to cause belong to Run's goroutine.
//   - Some of them keep their values from one evaluation to the next. Run sets cause before each evaluation. If an
//     evaluation continues the previous one without a pause, cause stays the same.
//   - startReclaim sets fileCounting.pendingCount. When the count arrives, Run clears that field and sets
//     fileCounting.result, which the next evaluation uses and clears.
//   - checkLimits sets podLimits.pendingResult, and evictExceeding clears it.
//   - actOn sets mutedUntil and noCandidate if no pod could be evicted. The next eviction clears noCandidate. Both
//     are cleared when no threshold is met any more.
//   - fileCounting.recount starts after a count that found no candidate. An eviction resets it, and so does an
//     evaluation in which no disk threshold is met.
//   - roomFailing is the result of the last measurement, so that only a change is logged.
type Eviction struct {
	c               Config
	thresholds      []Threshold
	transition      time.Duration
	state           State
	podLimits       podLimits
	fileCounting    fileCounting
	terminationLogs terminationLogs
	roomFailing     bool      // the last measurement failed
	mutedUntil      time.Time // memory events of the kernel are ignored until this time
	noCandidate     bool      // the message that no pod can be evicted has been logged
	watch           Waker
	cause           string        // why the evaluation runs, for the log: kernel, timer, limits (a pod's own limits) or oom
	podChanged      chan struct{} // capacity 1
	oomSignal       chan struct{} // capacity 1; receives a value when OutOfMemory is called

	mu          sync.Mutex
	hasMeasured bool
	conditions  []v1.NodeConditionType
	lastOOM     time.Time               // when the machine last ran out of memory
	evictedAt   map[types.UID]time.Time // when each static pod was last evicted
}

// New validates the configuration. It starts no goroutine.
func New(c Config) (*Eviction, error) {
	list, err := Parse(c.Kubelet)
	if err != nil {
		return nil, err
	}
	return &Eviction{
		c: c, thresholds: list, transition: c.Kubelet.EvictionPressureTransitionPeriod.Duration,
		cause: "timer", terminationLogs: terminationLogs{pods: c.PodsDir, busy: make(chan struct{}, 1)},
		evictedAt: map[types.UID]time.Time{}, podChanged: make(chan struct{}, 1),
		oomSignal: make(chan struct{}, 1),
	}, nil
}

// Conditions returns the node's current pressure conditions: MemoryPressure, DiskPressure,
// PIDPressure.
func (e *Eviction) Conditions() []v1.NodeConditionType {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.conditions
}

// HasMeasured reports whether Conditions is based on a measurement.
func (e *Eviction) HasMeasured() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasMeasured
}

// IsBarred reports whether an evicted pod must not be admitted yet. It must not be admitted while the node has a
// pressure condition, soon after the eviction, or before the first measurement.
func (e *Eviction) IsBarred(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.evictedAt[uid]
	return !e.hasMeasured || len(e.conditions) > 0 || known && time.Since(at) < e.readmitDelay()
}

// NotifyPodChange wakes Run if Run waits for an evicted pod to end or has to check the limits of a new pod. It never blocks.
func (e *Eviction) NotifyPodChange() {
	select {
	case e.podChanged <- struct{}{}:
	default:
	}
}

// OutOfMemory must be called when the kernel has killed processes because the machine ran out of memory. The
// parameter ago is the time since the kill. The shortage was too short for a measurement, so Run treats it as a
// memory threshold that was met. OutOfMemory never blocks.
func (e *Eviction) OutOfMemory(ago time.Duration) {
	e.mu.Lock()
	if at := time.Now().Add(-ago); at.After(e.lastOOM) {
		e.lastOOM = at
	}
	e.mu.Unlock()
	select {
	case e.oomSignal <- struct{}{}:
	default:
	}
}

// lastOOMTime returns when the machine last ran out of memory. It is zero if that never happened.
func (e *Eviction) lastOOMTime() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastOOM
}

// readmitDelay returns the minimum time for which a static pod stays ended after its eviction. If it started earlier,
// the pod could cause the same pressure again.
func (e *Eviction) readmitDelay() time.Duration { return max(e.transition, minInterval) }

// Times used by Run.
const (
	wakeGap      = 250 * time.Millisecond // minimum interval between two measurements after kernel events
	armDelay     = time.Second            // time after the start by which the pods' cgroup should exist
	evictTimeout = 30 * time.Second       // maximum time to wait until an evicted pod has ended, as in a kubelet
)
