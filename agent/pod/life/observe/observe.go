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
	relistWithEvents    = 5 * time.Minute // events may be lost, but seldom
	syncsOfRelist       = 5               // what Sync of a minute makes the same
	relistWithoutEvents = 2 * time.Second
	resubscribeAfter    = time.Second
	standsAfter         = time.Second // a subscription counts as active: few runtimes report it

	// A runtime may report first that a container ended and then, seconds later if it is busy, that it was killed for
	// lack of memory, as containerd before 2.3 does. For so long after the end the reason may change.
	reasonLate = 10 * time.Second
)

// reasonAgain is how long after the end of a container its reason is read again.
var reasonAgain = []time.Duration{time.Second, 9 * time.Second}

// Config is what an Observer needs.
type Config struct {
	Runtime cri.Runtime     // if it implements cri.Events, its events are used
	Changed func(types.UID) // called after a view changed; must not block
	Log     *slog.Logger
	// Relisted is called after each Relist with how long it took, and when the one before ended; zero: it was the
	// first. Nil: it is not called.
	Relisted func(took time.Duration, before time.Time)
	Relist   time.Duration // 0: five minutes with events, two seconds without
	// Sync is a kubelet's syncFrequency. With events all pods are listed only after five times of it. 0: a minute.
	Sync time.Duration
}

// An Observer has the views of all pods. Its methods may be called from any goroutine.
type Observer struct {
	cfg   Config
	dirty *dirty.Set[types.UID] // to be read

	// One of these locks, chosen by the UID, is held while a pod is read, so that an older view never replaces a
	// newer one.
	reading [64]sync.Mutex
	seed    maphash.Seed

	mu    sync.Mutex
	pods  map[types.UID]plan.Observed
	since time.Time // when Run began its present calls of the runtime; zero: it makes none

	relisted time.Time // when the last Relist ended
}

// New starts nothing.
func New(cfg Config) *Observer {
	if cfg.Relist == 0 {
		cfg.Relist = relistWithoutEvents
		if _, ok := cfg.Runtime.(cri.Events); ok {
			cfg.Relist = relistWithEvents
			if cfg.Sync > 0 {
				cfg.Relist = syncsOfRelist * cfg.Sync
			}
		}
	}
	return &Observer{cfg: cfg, seed: maphash.MakeSeed(), pods: map[types.UID]plan.Observed{}, dirty: dirty.New[types.UID]()}
}

// Pod returns the newest view of a pod. It is empty if the runtime has nothing of the pod.
func (o *Observer) Pod(uid types.UID) plan.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pods[uid]
}

// UIDs returns the pods that the runtime has something of.
func (o *Observer) UIDs() []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.pods))
}

// Has reports whether the runtime has a container.
func (o *Observer) Has(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.pods {
		if find(seen, id) != nil {
			return true
		}
	}
	return false
}

// Run keeps the views fresh until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { o.follow(ctx) })
	tick := time.NewTicker(o.cfg.Relist)
	defer tick.Stop()
	for {
		o.began(time.Time{})
		select {
		case <-o.dirty.Wake():
			o.began(time.Now())
			for _, uid := range o.dirty.Take() {
				if err := o.Refresh(ctx, uid); err != nil && ctx.Err() == nil {
					o.cfg.Log.Warn("cannot read a pod from the runtime", "uid", uid, "error", err)
				}
			}
		case <-tick.C:
			o.began(time.Now())
			if err := o.Relist(ctx); err != nil && ctx.Err() == nil {
				o.cfg.Log.Warn("cannot list the runtime's pods", "error", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *Observer) began(t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since = t
}

// Busy returns for how long Run has been waiting for answers of the runtime; 0: it is not.
func (o *Observer) Busy() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return 0
	}
	return time.Since(o.since)
}

// follow subscribes to the runtime's events, and again after each failure. Changes between two subscriptions, or before
// a subscription is active, cause no event. All pods are therefore listed after a failure, and again when the subscription
// is active.
func (o *Observer) follow(ctx context.Context) {
	events, ok := o.cfg.Runtime.(cri.Events)
	for ok && ctx.Err() == nil {
		err := o.subscribe(ctx, events)
		if ctx.Err() == nil {
			o.cfg.Log.Warn("the runtime's events broke off, listing everything", "error", err)
			o.relist(ctx, resubscribeAfter)
		}
	}
}

// subscribe receives events until the subscription ends with an error, or ctx ends.
func (o *Observer) subscribe(ctx context.Context, events cri.Events) error {
	var listing sync.WaitGroup
	defer listing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listing.Go(func() { o.relist(ctx, standsAfter) })
	return events.ContainerEvents(ctx, func(e *api.ContainerEventResponse) {
		if uid := uidOf(e); uid != "" {
			o.dirty.Add(uid)
		}
	})
}

// relist calls Relist after some time, unless ctx ends before.
func (o *Observer) relist(ctx context.Context, after time.Duration) {
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

// Relist lists all pods of the runtime, and reads those again whose view differs. It is called once before the workers
// start.
func (o *Observer) Relist(ctx context.Context) error {
	begin := time.Now()
	defer func() {
		o.mu.Lock()
		before := o.relisted
		o.relisted = time.Now()
		o.mu.Unlock()
		if o.cfg.Relisted != nil {
			o.cfg.Relisted(time.Since(begin), before)
		}
	}()
	found, err := o.list(ctx, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range append(o.UIDs(), slices.Collect(maps.Keys(found))...) {
		if l := found[uid]; l == nil || !l.same(o.Pod(uid)) {
			if err := o.Refresh(ctx, uid); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Refresh reads one pod from the runtime now. The worker calls it after each of
// its own actions.
func (o *Observer) Refresh(ctx context.Context, uid types.UID) error {
	return o.refresh(ctx, uid, func(seen plan.Observed) plan.Observed { return seen })
}

// Reread is Refresh that reads running containers again, too: their resources change only when the worker changes them.
func (o *Observer) Reread(ctx context.Context, uid types.UID) error {
	return o.refresh(ctx, uid, func(seen plan.Observed) plan.Observed { return plan.Observed{Sandboxes: seen.Sandboxes} })
}

// refresh reads a pod again, and updates its view. Members of the former view that kept returns are not read again if
// their state is the same.
func (o *Observer) refresh(ctx context.Context, uid types.UID, kept func(plan.Observed) plan.Observed) error {
	lock := &o.reading[maphash.String(o.seed, string(uid))%uint64(len(o.reading))]
	lock.Lock()
	defer lock.Unlock()
	before := o.Pod(uid)
	after, err := o.read(ctx, uid, kept(before))
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
	if slices.ContainsFunc(after.Containers, func(c plan.Container) bool { return unsettled(c) && !ended(before, c.ID) }) {
		for _, again := range reasonAgain {
			time.AfterFunc(again, func() {
				if slices.ContainsFunc(o.Pod(uid).Containers, unsettled) {
					o.dirty.Add(uid)
				}
			})
		}
	}
	return nil
}

// unsettled reports whether the runtime may yet report another reason for a container's end.
func unsettled(c plan.Container) bool {
	age := time.Since(c.FinishedAt)
	return c.State == plan.Exited && c.Reason == "Error" && 0 <= age && age < reasonLate
}

// ended reports whether a container has ended in a view.
func ended(seen plan.Observed, id string) bool {
	c := find(seen, id)
	return c != nil && c.State == plan.Exited
}
