package observe

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/dirty"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
)

const (
	relistWithEvents    = 5 * time.Minute // long, because events are seldom lost
	relistPerSync       = 5               // with the default Sync, one minute, the result is relistWithEvents
	relistWithoutEvents = 2 * time.Second
	resubscribeAfter    = time.Second
	activeAfter         = time.Second // until a new subscription counts as active; few runtimes report this

	// eventDelay is the maximum delay of the read after an event about a pod for which the agent itself has a call in progress. The agent
	// reads the pod after the call, so events about its own changes cause no further read.
	eventDelay = 200 * time.Millisecond

	// For this time after the end of a container, the runtime may still change the reason from Error to
	// OOMKilled. containerd before 2.3 does this, some seconds late if it is busy.
	reasonLate = 10 * time.Second
)

// rereadAfter contains the times after the end of a container at which its reason is read
// again.
var rereadAfter = []time.Duration{time.Second, 9 * time.Second}

// Config configures an Observer.
type Config struct {
	Root    string          // --root-dir, with the termination logs
	Runtime cri.Runtime     // if it implements cri.Events, its events are used
	Changed func(types.UID) // called after a view changed; must not block
	Log     *slog.Logger
	// OnRelist is called after each Relist, with the duration of this Relist and the time at which the last one that could list the
	// runtime's pods ended. The time is zero before that. OnRelist may be nil.
	OnRelist func(took time.Duration, before time.Time)
	Relist   time.Duration // period of Relist; 0 means five minutes with events and two seconds without
	// Sync is the syncFrequency of a kubelet's configuration; 0 means one minute. With events, the default period of
	// Relist is five times Sync.
	Sync time.Duration
}

// An Observer keeps the views of all pods. Its methods may be called from any goroutine.
type Observer struct {
	cfg   Config
	dirty *dirty.Set[types.UID] // the pods to read again

	// A lock serializes the reads of a pod, so that an older view of the pod never replaces a newer view. The pod's UID
	// selects one of these locks.
	readLocks [64]sync.Mutex
	seed      maphash.Seed

	mu        sync.Mutex
	pods      map[types.UID]plan.Observed
	own       map[types.UID]*ownCalls
	callStart time.Time // when Run began the current calls to the runtime; zero if no call is in progress

	lastRelist time.Time // when the last Relist ended that could list the runtime's pods
	listFailed bool      // the last Relist could not list the runtime's pods
	subscribed bool      // events report all changes since lastRelist
}

// An ownCalls contains the calls to the runtime that the agent itself has in progress for a pod. Observer.mu guards the fields.
type ownCalls struct {
	count   int
	waiting *time.Timer // reads the pod after an event; nil if no event waits
	failed  bool        // a read after an event has failed
}

// New returns an Observer without views. Run keeps them up to date.
func New(cfg Config) *Observer {
	if cfg.Relist == 0 {
		cfg.Relist = relistWithoutEvents
		if _, ok := cfg.Runtime.(cri.Events); ok {
			cfg.Relist = relistWithEvents
			if cfg.Sync > 0 {
				cfg.Relist = relistPerSync * cfg.Sync
			}
		}
	}
	return &Observer{cfg: cfg, seed: maphash.MakeSeed(), pods: map[types.UID]plan.Observed{}, own: map[types.UID]*ownCalls{},
		dirty: dirty.New[types.UID]()}
}

// Pod returns the newest view of a pod. The view is empty if the runtime has no sandbox or container of the pod.
func (o *Observer) Pod(uid types.UID) plan.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pods[uid]
}

// UIDs returns the UIDs of the pods that have a sandbox or a container in the runtime.
func (o *Observer) UIDs() []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.pods))
}

// HasContainer reports whether a view contains the container with the given ID.
func (o *Observer) HasContainer(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.pods {
		if findContainer(seen, id) != nil {
			return true
		}
	}
	return false
}

// Run keeps the views up to date until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { o.followEvents(ctx) })
	tick := time.NewTicker(o.cfg.Relist)
	defer tick.Stop()
	for {
		o.setCallStart(time.Time{})
		select {
		case <-o.dirty.Wake():
			o.setCallStart(time.Now())
			for _, uid := range o.dirty.TakeAll() {
				if err := o.refresh(ctx, uid); err != nil && ctx.Err() == nil {
					o.cfg.Log.Warn("cannot read a pod from the runtime", "uid", uid, "error", err)
				}
			}
		case <-tick.C:
			o.setCallStart(time.Now())
			if err := o.Relist(ctx); err != nil && ctx.Err() == nil {
				o.cfg.Log.Warn("cannot list the runtime's pods", "error", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *Observer) setCallStart(t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.callStart = t
}

// CallDuration returns how long Run has been waiting for responses of the runtime. It is 0 if Run does not wait.
func (o *Observer) CallDuration() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.callStart.IsZero() {
		return 0
	}
	return time.Since(o.callStart)
}

// LastSeen returns the time until which the views contain all changes in the runtime. That is the end of the last list of all pods, or the
// current time while the subscription to events is active, unless a list has failed or Run waits for a response of the runtime.
func (o *Observer) LastSeen() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.subscribed || o.listFailed || !o.callStart.IsZero() && o.callStart.Before(o.lastRelist):
		return o.lastRelist
	case !o.callStart.IsZero():
		return o.callStart
	default:
		return time.Now()
	}
}

// setSubscribed records whether the subscription to events is active and all pods were listed since then.
func (o *Observer) setSubscribed(subscribed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscribed = subscribed
}

// followEvents subscribes to the runtime's events, and subscribes again after each failure. A change between two subscriptions,
// or before a subscription is active, causes no event. Therefore all pods are listed after a failure, and again when the
// new subscription is active.
func (o *Observer) followEvents(ctx context.Context) {
	_, ok := o.cfg.Runtime.(cri.Events)
	for ok && ctx.Err() == nil {
		err := o.receiveEvents(ctx)
		if ctx.Err() == nil {
			o.cfg.Log.Warn("the subscription to the runtime's events ended, listing all pods", "error", err)
			o.relistAfter(ctx, resubscribeAfter)
		}
	}
}

// receiveEvents receives events until the subscription ends with an error, or ctx ends.
func (o *Observer) receiveEvents(ctx context.Context) error {
	var listing sync.WaitGroup
	defer o.setSubscribed(false)
	defer listing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listing.Go(func() {
		o.relistAfter(ctx, activeAfter)
		o.setSubscribed(true)
	})
	if r, ok := o.cfg.Runtime.(cri.PodWatcher); ok {
		defer r.WatchPods(func(uid string) { o.handleEvent(types.UID(uid)) })()
		<-ctx.Done()
		return ctx.Err()
	}
	return o.cfg.Runtime.(cri.Events).ContainerEvents(ctx, func(e *api.ContainerEventResponse) { o.handleEvent(uidOf(e)) })
}

// handleEvent makes Run read a pod again. If the agent itself has a call in progress for the pod, Run reads the pod after eventDelay,
// unless Refresh or the end of the call makes this read unnecessary.
func (o *Observer) handleEvent(uid types.UID) {
	if uid == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch c := o.own[uid]; {
	case c == nil:
		o.dirty.Add(uid)
	case c.waiting == nil:
		c.waiting = time.AfterFunc(eventDelay, func() { o.dirty.Add(uid) })
	}
}

// Begin reports that the agent begins a call to the runtime that may change a pod. After the call, the agent calls Refresh or Reread, and
// then the returned function. An event that arrives between these two calls is not lost.
func (o *Observer) Begin(uid types.UID) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.own[uid]
	if c == nil {
		c = &ownCalls{}
		o.own[uid] = c
	}
	c.count++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if c.count--; c.count > 0 {
			return
		}
		delete(o.own, uid)
		if c.takeEvent() || c.failed {
			o.dirty.Add(uid)
		}
	}
}

// takeEvent cancels the delayed read after an event. It reports whether such a read was pending.
func (c *ownCalls) takeEvent() bool {
	if c == nil || c.waiting == nil {
		return false
	}
	c.waiting.Stop()
	c.waiting = nil
	return true
}

// relistAfter waits for the given time and calls Relist. If ctx ends first, it returns.
func (o *Observer) relistAfter(ctx context.Context, after time.Duration) {
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return
	}
	if err := o.Relist(ctx); err != nil && ctx.Err() == nil {
		o.cfg.Log.Warn("cannot list the runtime's pods", "error", err)
	}
}

func uidOf(e *api.ContainerEventResponse) types.UID {
	if s := e.PodSandboxStatus; s != nil {
		return types.UID(s.Metadata.GetUid())
	}
	for _, c := range e.ContainersStatuses {
		return types.UID(c.Labels[keys.PodUID])
	}
	return ""
}

// Relist lists all pods of the runtime, and reads a pod again if its view differs from the list. The agent calls it
// once before the workers start.
func (o *Observer) Relist(ctx context.Context) error {
	begin := time.Now()
	found, err := o.listPods(ctx, nil)
	errs := []error{err}
	if err == nil {
		for _, uid := range append(o.UIDs(), slices.Collect(maps.Keys(found))...) {
			if l := found[uid]; l == nil || !l.equalsView(o.Pod(uid)) {
				errs = append(errs, o.refresh(ctx, uid))
			}
		}
	}
	o.mu.Lock()
	before := o.lastRelist
	o.listFailed = err != nil
	if !o.listFailed {
		o.lastRelist = time.Now()
	}
	o.mu.Unlock()
	if o.cfg.OnRelist != nil {
		o.cfg.OnRelist(time.Since(begin), before)
	}
	return errors.Join(errs...)
}

// Refresh reads one pod from the runtime. The worker calls it after each of its own actions. It does not call Config.Changed, because the
// end of the action causes another round of the worker in any case.
func (o *Observer) Refresh(ctx context.Context, uid types.UID) error {
	_, err := o.updateView(ctx, uid, func(seen plan.Observed) plan.Observed { return seen })
	return err
}

// refresh is like Refresh, but calls Config.Changed if the view has changed.
func (o *Observer) refresh(ctx context.Context, uid types.UID) error {
	changed, err := o.updateView(ctx, uid, func(seen plan.Observed) plan.Observed { return seen })
	if changed {
		o.cfg.Changed(uid)
	}
	return err
}

// Reread is like Refresh, but also reads the containers whose state has not changed. The worker calls it
// after it has changed the resources of a running container. Only the worker changes resources, so Refresh
// need not read them.
func (o *Observer) Reread(ctx context.Context, uid types.UID) error {
	_, err := o.updateView(ctx, uid, func(seen plan.Observed) plan.Observed { return plan.Observed{Sandboxes: seen.Sandboxes} })
	return err
}

// updateView reads a pod from the runtime and replaces its view. The parameter kept is a function that selects
// sandboxes and containers of the former view. If the state of a selected sandbox or container has not changed,
// updateView copies it to the new view instead of reading it. It reports whether the view has changed.
func (o *Observer) updateView(ctx context.Context, uid types.UID, kept func(plan.Observed) plan.Observed) (changed bool, err error) {
	lock := &o.readLocks[maphash.String(o.seed, string(uid))%uint64(len(o.readLocks))]
	lock.Lock()
	defer lock.Unlock()
	o.mu.Lock()
	before, own := o.pods[uid], o.own[uid]
	event := own.takeEvent() // the lists that are read now contain the change of the event
	o.mu.Unlock()
	after, err := o.readPod(ctx, uid, kept(before))
	if err != nil {
		if event {
			o.mu.Lock()
			own.failed = true // the end of the call reads the pod again
			o.mu.Unlock()
		}
		return false, fmt.Errorf("read pod %s from the runtime: %w", uid, err)
	}
	o.mu.Lock()
	if len(after.Sandboxes)+len(after.Containers) > 0 {
		o.pods[uid] = after
	} else {
		delete(o.pods, uid)
	}
	o.mu.Unlock()
	if slices.ContainsFunc(after.Containers, func(c plan.Container) bool { return o.mayChange(c) && !hasEnded(before, c.ID) }) {
		for _, delay := range rereadAfter {
			time.AfterFunc(delay, func() {
				if slices.ContainsFunc(o.Pod(uid).Containers, o.mayChange) {
					o.dirty.Add(uid)
				}
			})
		}
	}
	return !reflect.DeepEqual(before, after), nil
}

// mayChange reports whether the runtime may still report another reason for the container's end.
func (o *Observer) mayChange(c plan.Container) bool {
	if _, final := o.cfg.Runtime.(cri.PodWatcher); final {
		return false
	}
	age := time.Since(c.FinishedAt)
	return c.State == plan.Exited && c.Reason == "Error" && 0 <= age && age < reasonLate
}

// hasEnded reports whether the container has ended according to the view.
func hasEnded(seen plan.Observed, id string) bool {
	c := findContainer(seen, id)
	return c != nil && c.State == plan.Exited
}
