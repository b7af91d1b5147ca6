package eviction

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/demand"
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
	Told() bool
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
	failing    bool      // to look
	quiet      time.Time // nobody could be evicted or found: what the kernel tells is no news until then
	stuck      bool      // there is nobody to evict
	watch      Waker
	by         string        // what made it look, for the log: kernel, timer or limits (of a pod's files)
	touched    chan struct{} // capacity 1

	mu         sync.Mutex
	looked     bool
	conditions []v1.NodeConditionType
	ended      map[types.UID]time.Time // pods of the node's own that were evicted, and when
}

// New checks the configuration and starts nothing.
func New(c Config) (*Eviction, error) {
	list, err := Parse(c.Kubelet)
	if err != nil {
		return nil, err
	}
	return &Eviction{c: c, thresholds: list, transition: c.Kubelet.EvictionPressureTransitionPeriod.Duration, ended: map[types.UID]time.Time{}, touched: make(chan struct{}, 1)}, nil
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
		<-ctx.Done()
		return nil
	}
	e.watch = e.c.Watch()
	defer e.watch.Close()
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
	v := e.state.Judge(list, o, e.transition, now)
	e.show(v.Conditions)
	e.arm(o)
	if !e.c.Hold {
		e.keepLimits(ctx, r, disks)
	}
	if len(v.Act) > 0 && !e.c.Hold && e.act(ctx, list, v.Act, o, r, disks) {
		return 0
	}
	if len(v.Act) == 0 {
		e.stuck, e.quiet = false, time.Time{}
	}
	wait := min(pause(list, o, e.watch.Told()), e.limits.pause(), e.readmit(now))
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

// act reclaims what the first threshold is on, or evicts a pod. True: a pod was evicted, and
// what follows is to be seen at once.
func (e *Eviction) act(ctx context.Context, list, met []Threshold, o Observations, r room.Room, d Disks) bool {
	t := met[0]
	what := t.Signal.meaning().resource
	e.c.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(what))
	if e.reclaim(ctx, t.Signal, d) {
		after, err := e.c.Room.Now(ctx)
		if err == nil {
			o = observe(after)
		}
		if err == nil && satisfied(list, o) {
			e.c.Log.Info("there is room again without evicting a pod", "signal", t.Signal)
			return false
		}
	}
	candidates, err := e.candidates(ctx, what)
	if err != nil {
		e.quiet = time.Now().Add(soonest)
		e.c.Log.Error("pods cannot be ranked for eviction", "signal", t.Signal, "error", err)
		return false
	}
	if what == v1.ResourceMemory { // figures take long where all wait for memory: whoever took it may have ended
		if machine, pods, err := e.c.Room.Memory(ctx); err == nil {
			maps.Copy(o, observe(room.Room{Memory: machine, Pods: pods}))
		}
		left := slices.DeleteFunc(slices.Clone(met), func(t Threshold) bool { return !o.below(t, true) })
		if len(left) == 0 {
			e.c.Log.Info("there is memory again without evicting a pod", "signal", t.Signal)
			e.arm(o) // what the kernel was asked for before is past
			return false
		}
		if left[0] != t {
			return e.act(ctx, list, left, o, r, d)
		}
	}
	for _, t := range met {
		e.c.Counts.Age(string(t.Signal), time.Since(r.At))
	}
	for _, c := range Rank(candidates, t.Signal, d, o.missing(t)) {
		message, annotations := Message(c, t, o)
		end := plan.End{Reason: plan.Evicted, Message: message, Grace: e.grace(c.Pod, t), Disrupted: true}
		if e.evict(ctx, c.Pod, end, string(t.Signal), annotations) {
			e.stuck = false
			return true
		}
	}
	e.quiet = time.Now().Add(soonest)
	if !e.stuck {
		e.stuck = true
		e.c.Log.Error("no pod can be evicted to make room: those that run are critical, or static with too little of it, or nothing is left of others", "signal", t.Signal)
	}
	return false
}

// grace is what a pod gets to end.
func (e *Eviction) grace(p *v1.Pod, t Threshold) time.Duration {
	if !t.Soft || t.Grace == 0 {
		return atOnce
	}
	most := int64(e.c.Kubelet.EvictionMaxPodGracePeriod)
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		most = min(most, *g)
	}
	return max(time.Duration(most)*time.Second, atOnce)
}

// atOnce is the grace period when it has to be quick, a kubelet's.
const atOnce = time.Second

// evict ends a pod and waits until it has ended, or for long enough.
func (e *Eviction) evict(ctx context.Context, p *v1.Pod, end plan.End, why string, annotations map[string]string) bool {
	if !e.c.Pods.Evict(ctx, p.UID, end) {
		return false
	}
	if demand.Own(p) {
		e.mu.Lock()
		e.ended[p.UID] = time.Now()
		e.mu.Unlock()
	}
	e.c.Events.PodWith(annotations, p, v1.EventTypeWarning, plan.Evicted, end.Message)
	e.c.Counts.Evicted(why)
	e.c.Log.Warn("pod is evicted", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "signal", why, "by", e.by, "message", end.Message)
	late := time.NewTimer(cleanup)
	defer late.Stop()
	for {
		if e.c.Pods.Cleared(p.UID) {
			return true
		}
		select {
		case <-e.touched:
		case <-late.C:
			e.c.Log.Warn("the evicted pod does not end in time", "pod", p.Namespace+"/"+p.Name, "uid", p.UID)
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// reclaim has removed what no pod needs on the disk of a signal. False: there is nothing
// that could be.
func (e *Eviction) reclaim(ctx context.Context, s Signal, d Disks) bool {
	if e.c.Reclaim == nil || s.meaning().condition != v1.NodeDiskPressure {
		return false
	}
	in := d.parts(s)
	var errs []error
	if in.layers {
		errs = append(errs, e.c.Reclaim.ReclaimContainers(ctx))
	}
	if s == ImageFs || s == ImageInodes || in.logs && d.Image || !in.logs && !d.Image && !d.Container {
		errs = append(errs, e.c.Reclaim.ReclaimImages(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		e.c.Log.Warn("not everything could be reclaimed that no pod needs", "signal", s, "error", err)
	}
	return len(errs) > 0
}

// candidates are the active pods with the figures that a resource needs.
func (e *Eviction) candidates(ctx context.Context, what v1.ResourceName) ([]Candidate, error) {
	var list []stats.PodStats
	if what == v1.ResourceMemory || what == pids {
		all, err := e.c.Figures.Processes(ctx)
		if err != nil {
			return nil, err
		}
		list = all
	} else {
		all, err := e.c.Figures.Summary(ctx, false)
		if err != nil {
			return nil, err
		}
		list = all.Pods
	}
	by := map[string]*stats.PodStats{}
	for i := range list {
		by[list[i].PodRef.UID] = &list[i]
	}
	var out []Candidate
	for _, p := range e.c.Pods.Active() {
		out = append(out, Candidate{p, by[string(p.UID)]})
	}
	return out, nil
}
