package eviction

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/metrics/room"
)

// Room says what the machine has left. *room.Reader is one.
type Room interface {
	// Now looks at everything; what is not known is not in it, of which the error tells.
	Now(context.Context) (room.Room, error)
	// Memory looks at the memory of the machine and at what pods may have yet.
	Memory(context.Context) (machine, pods room.Amount, err error)
}

// Figures say what pods use. *usage.Usage is one.
type Figures interface {
	// Summary has the files of all pods, which may take long.
	Summary(ctx context.Context, short bool) (*stats.Summary, error)
	// Processes has the memory and processes of all pods.
	Processes(context.Context) ([]stats.PodStats, error)
	// Storage has the files of one pod; ones of a volume may be as old as age.
	Storage(ctx context.Context, pod *v1.Pod, age time.Duration) (*stats.PodStats, error)
}

// Pods are those of the node. *pods.Pods is one.
type Pods interface {
	// Active are the pods that may run here and have not ended; nobody changes them.
	Active() []*v1.Pod
	// Evict ends a pod. It returns once that counts, which is before the pod has ended;
	// false: it ends already, or is gone.
	Evict(context.Context, types.UID, plan.End) bool
	// Cleared reports whether nothing is left of an evicted pod that another could use.
	Cleared(types.UID) bool
	// NodeChanged lets pods ask again that may not run.
	NodeChanged()
}

// A Reclaimer makes room on disks without ending a pod: it removes containers that have
// ended, and images that nothing needs.
type Reclaimer interface {
	ReclaimContainers(context.Context) error
	ReclaimImages(context.Context) error
}

// Events takes events. *outbox.Events is one.
type Events interface {
	Node(eventType, reason, message string)
	PodWith(annotations map[string]string, pod *v1.Pod, eventType, reason, message string)
}

// Counts takes figures of evictions. *figures.Evictions is one.
type Counts interface {
	Evicted(signal string)
	Age(signal string, age time.Duration) // of the figures that pods are evicted by
}

// Waker tells when memory may have become short. *Watch is one.
type Waker interface {
	Wake() <-chan struct{}
	Tells() Tells
	Arm(machine, pods uint64)
	Close()
}

// Config is what New needs.
type Config struct {
	Kubelet *kubelet.KubeletConfiguration // with every default set
	Room    Room
	Figures Figures
	Pods    Pods
	Reclaim Reclaimer // nil: there is nothing to reclaim
	Events  Events
	Counts  Counts
	Watch   func() Waker // is called when Run begins
	PodsDir string       // of all pods' directories, whose termination logs are cut; empty: none are
	Hold    bool         // conditions are shown, but no pod is evicted and nothing is reclaimed
	Changed func()       // the conditions of the node are others; it must not block
	Log     *slog.Logger
}

// An Eviction ends pods. But for Run, its methods may be called at once.
type Eviction struct {
	c          Config
	thresholds []Threshold
	transition time.Duration
	state      State
	limits     limits
	files      files
	cuts       cuts
	failing    bool      // to look
	quiet      time.Time // nobody could be evicted or found: what the kernel tells is no news until then
	stuck      bool      // there is nobody to evict
	watch      Waker
	by         string        // what made it look, for the log: kernel, timer, limits (of a pod's files) or oom (which the kernel ended)
	touched    chan struct{} // capacity 1
	ran        chan struct{} // out of memory; capacity 1

	mu         sync.Mutex
	looked     bool
	conditions []v1.NodeConditionType
	out        time.Time               // when the machine was out of memory last
	ended      map[types.UID]time.Time // pods of the node's own that were evicted, and when
}

// New checks the configuration and starts nothing.
func New(c Config) (*Eviction, error) {
	list, err := Parse(c.Kubelet)
	if err != nil {
		return nil, err
	}
	return &Eviction{c: c, thresholds: list, transition: c.Kubelet.EvictionPressureTransitionPeriod.Duration, by: "timer", cuts: cuts{pods: c.PodsDir, busy: make(chan struct{}, 1)}, ended: map[types.UID]time.Time{}, touched: make(chan struct{}, 1), ran: make(chan struct{}, 1)}, nil
}

// Conditions are those of the node that hold: MemoryPressure, DiskPressure, PIDPressure.
func (e *Eviction) Conditions() []v1.NodeConditionType {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.conditions
}

// Looked reports whether Conditions are of this machine as it is.
func (e *Eviction) Looked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.looked
}

// Barred reports whether a pod that was evicted may not come back yet: the node has a
// pressure, or it was evicted just now. Before the first look nobody knows.
func (e *Eviction) Barred(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.ended[uid]
	return !e.looked || len(e.conditions) > 0 || known && time.Since(at) < e.rest()
}

// Touched says that something of a pod may have ended. It never blocks.
func (e *Eviction) Touched() {
	select {
	case e.touched <- struct{}{}:
	default:
	}
}

// OutOfMemory says that the machine had no memory left some time ago, so that the kernel
// killed for it. It was too fast for any threshold to be seen met, so it counts as if one had
// been. It never blocks.
func (e *Eviction) OutOfMemory(ago time.Duration) {
	e.mu.Lock()
	if at := time.Now().Add(-ago); at.After(e.out) {
		e.out = at
	}
	e.mu.Unlock()
	select {
	case e.ran <- struct{}{}:
	default:
	}
}

// lastOut is when the machine was out of memory last; zero: it never was.
func (e *Eviction) lastOut() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out
}

// rest is how long a pod of the node's own stays away after its eviction, at least: what it
// did then it may do again.
func (e *Eviction) rest() time.Duration { return max(e.transition, soonest) }

// Bounds of waiting.
const (
	settle  = 250 * time.Millisecond // least time between looks that the kernel asked for
	armed   = time.Second            // after the start: the cgroup of all pods is there
	cleanup = 30 * time.Second       // for a pod to end, as a kubelet waits
)

// Run looks until ctx ends.
func (e *Eviction) Run(ctx context.Context) error {
	if len(e.thresholds) == 0 && !e.isolates() {
		e.show(nil)
		e.c.Watch().Close() // which takes away what an agent that had thresholds left to the kernel
		<-ctx.Done()
		return nil
	}
	e.watch = e.c.Watch()
	defer e.watch.Close()
	defer e.limits.background.Wait()
	defer e.files.background.Wait()
	defer e.cuts.background.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	var last, due time.Time
	var pause time.Duration
	// After the kernel told and there was enough; and once the cgroup of all pods is made,
	// beside the first look: before, it could not be armed.
	again := time.After(armed)
	for {
		woken := false
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			if pause > 0 { // else it goes on with what it began
				e.by = "timer"
			}
		case <-e.touched: // a pod that has limits may have come
			if e.isolates() && time.Until(due) > soonest {
				due = time.Now().Add(soonest)
				next.Reset(soonest)
			}
			continue
		case found := <-e.limits.measuring:
			e.by = "limits"
			if e.punish(ctx, found); len(found) == 0 {
				continue
			}
		case found := <-e.files.counting:
			e.files.counting, e.files.found, e.by = nil, &found, found.by
		case <-e.ran:
			e.by = "oom"
		case <-e.watch.Wake():
			if time.Now().Before(e.quiet) {
				continue
			}
			woken, e.by = true, "kernel"
		case <-again: // who takes memory fast has more by now, and had when the next mark was set
			again = nil
			if time.Now().Before(e.quiet) || !e.short(ctx) {
				continue
			}
			e.by = "kernel"
		}
		if woken {
			if wait := settle - time.Since(last); wait > 0 {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(wait):
				}
			}
			last = time.Now()
			if !e.short(ctx) {
				again = time.After(settle)
				continue
			}
		}
		pause = e.look(ctx)
		last = time.Now()
		due = last.Add(pause)
		next.Reset(pause)
	}
}

// short reports whether a threshold on memory is met. If not, the next one is told of anew.
func (e *Eviction) short(ctx context.Context) bool {
	machine, pods, err := e.c.Room.Memory(ctx)
	if err != nil {
		return true // look tells of it
	}
	o := observe(room.Room{Memory: machine, Pods: pods})
	for _, t := range e.thresholds {
		if o.below(t, false) {
			return true
		}
	}
	e.arm(o)
	return false
}

// arm asks to be told when as much memory is used as makes the first threshold be met.
func (e *Eviction) arm(o Observations) {
	var more [2]uint64
	for _, t := range e.thresholds {
		i := slices.Index([]Signal{Memory, PodsMemory}, t.Signal)
		a, ok := o[t.Signal]
		if i < 0 || !ok {
			continue
		}
		if want := t.Value.of(a.Total); a.Free > want && (more[i] == 0 || a.Free-want < more[i]) {
			more[i] = a.Free - want
		}
	}
	e.watch.Arm(more[0], more[1])
}

// look looks at everything, does what follows, and says when to look again.
func (e *Eviction) look(ctx context.Context) time.Duration {
	r, err := e.c.Room.Now(ctx)
	if err != nil && !e.failing && ctx.Err() == nil {
		e.c.Log.Warn("not everything that pods may be evicted for can be measured", "error", err)
	}
	e.failing = err != nil
	now := time.Now()
	disks := disksOf(r)
	list, o := withContainerFs(e.thresholds, disks.Container), observe(r)
	e.state.saw(v1.NodeMemoryPressure, e.lastOut())
	v := e.state.Judge(list, o, e.transition, now)
	defer func() { e.files.found = nil }()
	if e.files.found != nil && !slices.ContainsFunc(v.Act, Threshold.onDisk) {
		e.c.Log.Info("there is room again without evicting a pod")
	}
	e.show(v.Conditions)
	e.arm(o)
	e.cut(r)
	if !e.c.Hold {
		e.keepLimits(ctx, r, disks)
	}
	if len(v.Act) > 0 && !e.c.Hold && e.act(ctx, v.Act, o, disks) {
		e.files.lull = lull{}
		return 0
	}
	switch f := e.files.found; {
	case !slices.ContainsFunc(v.Act, Threshold.onDisk):
		e.files.lull = lull{}
	case f != nil && f.err == nil && !f.some:
		e.files.lull.begin(v.Act, o, now)
	}
	if len(v.Act) == 0 {
		e.stuck, e.quiet = false, time.Time{}
	}
	wait := min(pause(list, o, e.watch.Tells()), e.limits.pause(), e.readmit(now))
	if !v.Wake.IsZero() {
		wait = min(wait, max(v.Wake.Sub(now), 0))
	}
	return wait
}

// disksOf says what is on the disk of the node. What is not known is taken to be.
func disksOf(r room.Room) Disks {
	same := func(d room.Disk) bool { return d.Device == 0 || r.Node.Device == 0 || d.Device == r.Node.Device }
	return Disks{Image: same(r.Image), Container: same(r.Container)}
}

// show lets all know of the conditions, if they are others. Without one, pods may run again.
func (e *Eviction) show(now []v1.NodeConditionType) {
	e.mu.Lock()
	before, first := e.conditions, !e.looked
	e.conditions, e.looked = now, true
	e.mu.Unlock()
	if slices.Equal(before, now) && !first {
		return
	}
	if len(before)+len(now) > 0 {
		e.c.Log.Warn("the pressure on the node is another", "conditions", now, "before", before, "by", e.by)
		e.c.Changed()
	}
	if len(now) < len(before) || first {
		e.c.Pods.NodeChanged()
	}
}

// readmit lets pods ask again that were evicted long enough ago, and says when the next of
// them may.
func (e *Eviction) readmit(now time.Time) time.Duration {
	e.mu.Lock()
	wait, freed := latest, false
	for uid, at := range e.ended {
		left := at.Add(e.rest()).Sub(now)
		if left <= 0 {
			delete(e.ended, uid)
			freed = true
			continue
		}
		wait = min(wait, left)
	}
	e.mu.Unlock()
	if freed {
		e.c.Pods.NodeChanged()
	}
	return wait
}
