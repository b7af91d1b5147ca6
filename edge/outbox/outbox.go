package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	maxParallel      = 4                // maximum number of concurrent requests while the server answers
	settleTime       = time.Second      // a status of a starting pod is sent when it was unchanged for this time
	settleMost       = 3 * time.Second  // maximum time from the first change until a status is sent
	normalDelay      = 5 * time.Second  // delay of less urgent changes
	firstStatusEvery = time.Second / 10 // minimum interval between two statuses of pods without a sandbox
	stepEvery        = time.Second / 20 // average interval between two statuses of pods that have a sandbox but are not ready yet
	stepBurst        = 30               // number of such statuses that may be sent at once
	startingDelay    = 20 * time.Second // maximum additional delay of a status of a starting pod
	firstRetry       = time.Second / 2
	lastRetry        = time.Minute     // reached after the server has failed for half an hour
	nextDoubtful     = 3 * time.Second // delay of a namespace's next request while one that will probably fail is not answered
	maxOwnRetry      = lastRetry / 4   // maximum delay of one status; the holds limit the rate
	maxRefusedRetry  = 5 * time.Minute // maximum interval between attempts after the server has rejected a request or the store has failed
)

// Config contains the dependencies of an Outbox.
type Config struct {
	Client *kube.Client
	Node   string
	// NodeUID returns the UID of the Node, which owns the mirror pods, or "" if it is unknown. No mirror pod is created before the UID is
	// known.
	NodeUID func() types.UID
	// IsWanted reports whether this node still has the pod, because it runs the pod or is ending it. The Outbox holds no lock during the
	// call.
	IsWanted func(types.UID) bool
	// IsReplaced reports whether it is certain that the API server does not wait for a deleting pod to end: the server has another pod with
	// the same name, or it wants the pod to run again. The Outbox holds no lock during the call.
	IsReplaced func(types.UID) bool
	// SourcesReported reports whether all sources of static pods have delivered their pods. Before that, no mirror pod is deleted.
	SourcesReported func() bool
	// Forget is called when a pod has no resources on this node any more, and the API server needs no further report about the pod.
	Forget func(ctx context.Context, uid types.UID) error
	Retry  kube.LinkSignal // a value means that the server may answer again; if zero, only a timer triggers retries
	Log    *slog.Logger
}

// An Outbox reports pods to the API server. It is safe for concurrent use.
type Outbox struct {
	Config
	wake chan struct{} // capacity 1

	mu            sync.Mutex
	pods          map[types.UID]*item            // pods of the API server
	mirrors       map[types.NamespacedName]*item // mirror pods of static pods
	deleted       map[types.UID]bool             // pods whose deletion was requested, and which the watch has not reported as gone
	listed        bool                           // PodsListed was called
	busy          int                            // number of requests in flight
	pausedUntil   time.Time                      // nothing is sent before this time
	retryAfterEnd time.Time                      // end of the server's Retry-After; pause is never earlier
	lastFirst     time.Time                      // time when a status of a pod without a sandbox was last sent
	startLimiter  *rate.Limiter                  // limits the statuses of pods that have a sandbox but are not ready yet
	serverBackoff retry.Backoff                  // back-off for failures of the server
	retrySignals  int                            // number of values that Retry has delivered
	offline       bool                           // nothing is sent until Retry receives a value
	holds         holds
}

// New returns an Outbox. It starts no goroutine.
func New(c Config) (*Outbox, error) {
	if c.Client == nil || c.Node == "" || c.NodeUID == nil || c.IsWanted == nil || c.IsReplaced == nil || c.SourcesReported == nil ||
		c.Forget == nil {
		return nil, errors.New("outbox: a part of the configuration is missing")
	}
	return &Outbox{
		Config: c, wake: make(chan struct{}, 1),
		serverBackoff: retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry},
		pods:          map[types.UID]*item{}, mirrors: map[types.NamespacedName]*item{},
		deleted:      map[types.UID]bool{},
		startLimiter: rate.NewLimiter(rate.Every(stepEvery), stepBurst),
	}, nil
}

// Put sets the manifest and the newest status of a pod. The caller must not modify them afterwards. Put does not block. Call Put for all
// stored statuses when the agent starts. Do not call Put for a static pod that waits for the end of another pod with the same name, because
// both pods have the same mirror pod.
func (o *Outbox) Put(p *v1.Pod, status *v1.PodStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.findOrCreate(p)
	if it.manifest == nil || it.manifest.UID != p.UID { // this static pod has replaced another one with the same name
		it.wantedStatus = nil
	}
	it.manifest = p
	it.hasEnded = hasEnded(status)
	switch d := maxDelay(it.wantedStatus, status); {
	case it.endsSoon():
		it.dueWithin(max(d, settleTime))
	case d == settleTime:
		it.scheduleSend()
	default:
		it.dueWithin(d)
	}
	it.wantedStatus, it.isStarting = status, isStarting(status)
	o.wakeRun()
}

// Finish records that a pod has no resources on this node any more, so that the pod can be forgotten. A static pod is forgotten
// immediately. A pod of the API server is forgotten after its last status was sent and the server has deleted the pod. If the server does
// not wait for the end of the pod, the pod is forgotten without a request, also while the link is down.
func (o *Outbox) Finish(ctx context.Context, p *v1.Pod) error {
	if !fromAPI(p) {
		o.mu.Lock()
		if it, ok := o.mirrors[nameOf(p)]; ok && it.manifest != nil && it.manifest.UID == p.UID {
			it.manifest, it.wantedStatus = nil, nil
			it.dueWithin(0)
			o.wakeRun()
		}
		o.mu.Unlock()
		return o.Forget(ctx, p.UID)
	}
	replaced := o.IsReplaced(p.UID)
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.findOrCreate(p)
	it.isFinished, it.isReplaced = true, replaced
	it.dueWithin(0)
	o.wakeRun()
	return nil
}

// Pending returns the number of pods with changes that the API server does not have yet.
func (o *Outbox) Pending() (n int) {
	o.mu.Lock()
	listed, list := o.listed, o.allItems()
	for i, it := range list {
		c := *it
		list[i] = &c
	}
	o.mu.Unlock()
	for _, it := range list {
		if it.isPending(listed) {
			n++
		}
	}
	return n
}

func fromAPI(p *v1.Pod) bool { return p.Annotations[keys.ConfigSource] == keys.SourceAPI }

// nameOf returns the name of a pod in the API server.
func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: podspec.MirrorName(p)}
}

// findOrCreate returns the item of a pod that the node wants. The caller must hold mu.
func (o *Outbox) findOrCreate(p *v1.Pod) *item {
	if fromAPI(p) {
		return o.podItem(nameOf(p), p.UID)
	}
	return o.mirrorItem(nameOf(p))
}

func (o *Outbox) podItem(name types.NamespacedName, uid types.UID) *item {
	it, ok := o.pods[uid]
	if !ok {
		it = &item{name: name, uid: uid}
		o.pods[uid] = it
	}
	return it
}

func (o *Outbox) mirrorItem(name types.NamespacedName) *item {
	it, ok := o.mirrors[name]
	if !ok {
		it = &item{name: name}
		o.mirrors[name] = it
	}
	return it
}

func (o *Outbox) allItems() (list []*item) {
	for _, it := range o.pods {
		list = append(list, it)
	}
	for _, it := range o.mirrors {
		list = append(list, it)
	}
	return list
}

func (o *Outbox) wakeRun() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run sends changes until ctx ends.
func (o *Outbox) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, ended, wait := o.nextToSend()
		for _, it := range ended {
			wg.Go(func() { o.forgetEnded(ctx, it) })
		}
		for _, it := range due {
			wg.Go(func() { o.send(ctx, it) })
		}
		timer.Stop()
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
		case <-timer.C:
		case <-o.Retry.C:
			o.mu.Lock()
			o.pausedUntil, o.offline = o.retryAfterEnd, false
			o.holds.end(time.Now())
			o.retryFailed()
			o.retrySignals++
			o.mu.Unlock()
		}
	}
}

// send sends the next request for one item. If the request fails, it schedules the next attempt.
func (o *Outbox) send(ctx context.Context, it *item) {
	o.mu.Lock()
	heard := o.retrySignals
	o.mu.Unlock()
	err := o.sync(ctx, it)
	o.mu.Lock()
	defer o.mu.Unlock()
	it.busy = false
	o.busy--
	now := time.Now()
	if it.failures > 0 { // see addItem
		o.holds.failed.end(now)
	} else if it.hold != nil {
		it.hold.end(now)
		it.hold = nil
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		o.holds.accept(it.name.Namespace, it.failures > 0, now)
		it.failures, it.refusals = 0, 0
		o.serverBackoff.Reset()
	case errors.Is(err, errStore):
		o.retryForget(it, err)
	case isRefusal(err):
		o.serverBackoff.Reset()
		o.retryAlone(it, "the API server rejects the status of a pod: the status is sent again later", err)
	case errors.Is(err, kube.ErrNoLink) && o.Retry.C != nil:
		it.dueWithin(0)
		o.offline = o.retrySignals == heard // if Retry has delivered a value during the request, the link may be up again
	case mayConcernOne(err):
		if !o.holds.hasFailed(now) {
			o.Log.Warn("the API server fails to store the status of a pod: the status is sent again later", "pod", it.name.String(),
				"uid", it.uid, "error", err)
		}
		if o.holds.fail(it.name.Namespace, it.failures == 0, now) && !now.Before(o.pausedUntil) {
			o.pausedUntil = now.Add(o.serverBackoff.Next(0))
		}
		it.failures++
		it.dueWithin(min(ownDelay(it.failures), maxOwnRetry))
	default:
		it.dueWithin(0)
		if !now.Before(o.pausedUntil) {
			if !o.serverBackoff.HasFailed() {
				o.Log.Warn("the statuses of pods cannot be sent and are retried, because the API server does not answer",
					"pod", it.name.String(), "uid", it.uid, "error", err)
			}
			asked := kube.RetryAfter(err)
			o.retryAfterEnd, o.pausedUntil = now.Add(asked), now.Add(o.serverBackoff.Next(asked))
		}
	}
	o.drop(it)
	o.wakeRun()
}
