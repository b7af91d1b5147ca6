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
	// OnRelist is called after each Relist, with the duration of this Relist and the time at which the
	// previous one ended. The time is zero for the first Relist. OnRelist may be nil.
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
	callStart time.Time // when Run began the current calls to the runtime; zero if no call is in progress

	lastRelist time.Time // when the last Relist ended
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
	return &Observer{cfg: cfg, seed: maphash.MakeSeed(), pods: map[types.UID]plan.Observed{}, dirty: dirty.New[types.UID]()}
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
				if err := o.Refresh(ctx, uid); err != nil && ctx.Err() == nil {
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

// followEvents subscribes to the runtime's events, and subscribes again after each failure. A change between two subscriptions,
// or before a subscription is active, causes no event. Therefore all pods are listed after a failure, and again when the
// new subscription is active.
func (o *Observer) followEvents(ctx context.Context) {
	events, ok := o.cfg.Runtime.(cri.Events)
	for ok && ctx.Err() == nil {
		err := o.receiveEvents(ctx, events)
		if ctx.Err() == nil {
			o.cfg.Log.Warn("the subscription to the runtime's events ended, listing all pods", "error", err)
			o.relistAfter(ctx, resubscribeAfter)
		}
	}
}

// receiveEvents receives events until the subscription ends with an error, or ctx ends.
func (o *Observer) receiveEvents(ctx context.Context, events cri.Events) error {
	var listing sync.WaitGroup
	defer listing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listing.Go(func() { o.relistAfter(ctx, activeAfter) })
	return events.ContainerEvents(ctx, func(e *api.ContainerEventResponse) {
		if uid := uidOf(e); uid != "" {
			o.dirty.Add(uid)
		}
	})
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
	defer func() {
		o.mu.Lock()
		before := o.lastRelist
		o.lastRelist = time.Now()
		o.mu.Unlock()
		if o.cfg.OnRelist != nil {
			o.cfg.OnRelist(time.Since(begin), before)
		}
	}()
	found, err := o.listPods(ctx, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range append(o.UIDs(), slices.Collect(maps.Keys(found))...) {
		if l := found[uid]; l == nil || !l.equalsView(o.Pod(uid)) {
			if err := o.Refresh(ctx, uid); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Refresh reads one pod from the runtime. The worker calls it after each of its own actions.
func (o *Observer) Refresh(ctx context.Context, uid types.UID) error {
	return o.updateView(ctx, uid, func(seen plan.Observed) plan.Observed { return seen })
}

// Reread is like Refresh, but also reads the containers whose state has not changed. The worker calls it
// after it has changed the resources of a running container. Only the worker changes resources, so Refresh
// need not read them.
func (o *Observer) Reread(ctx context.Context, uid types.UID) error {
	return o.updateView(ctx, uid, func(seen plan.Observed) plan.Observed { return plan.Observed{Sandboxes: seen.Sandboxes} })
}

// updateView reads a pod from the runtime and replaces its view. The parameter kept is a function that selects
// sandboxes and containers of the former view. If the state of a selected sandbox or container has not changed,
// updateView copies it to the new view instead of reading it.
func (o *Observer) updateView(ctx context.Context, uid types.UID, kept func(plan.Observed) plan.Observed) error {
	lock := &o.readLocks[maphash.String(o.seed, string(uid))%uint64(len(o.readLocks))]
	lock.Lock()
	defer lock.Unlock()
	before := o.Pod(uid)
	after, err := o.readPod(ctx, uid, kept(before))
	if err != nil {
		return fmt.Errorf("read pod %s from the runtime: %w", uid, err)
	}
	o.mu.Lock()
	if len(after.Sandboxes)+len(after.Containers) > 0 {
		o.pods[uid] = after
	} else {
		delete(o.pods, uid)
	}
	o.mu.Unlock()
	if !reflect.DeepEqual(before, after) {
		o.cfg.Changed(uid)
	}
	if slices.ContainsFunc(after.Containers, func(c plan.Container) bool { return mayChange(c) && !hasEnded(before, c.ID) }) {
		for _, delay := range rereadAfter {
			time.AfterFunc(delay, func() {
				if slices.ContainsFunc(o.Pod(uid).Containers, mayChange) {
					o.dirty.Add(uid)
				}
			})
		}
	}
	return nil
}

// mayChange reports whether the runtime may still report another reason for the container's end.
func mayChange(c plan.Container) bool {
	age := time.Since(c.FinishedAt)
	return c.State == plan.Exited && c.Reason == "Error" && 0 <= age && age < reasonLate
}

// hasEnded reports whether the container has ended according to the view.
func hasEnded(seen plan.Observed, id string) bool {
	c := findContainer(seen, id)
	return c != nil && c.State == plan.Exited
}
