package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	parallel   = 4                // requests at once while the server is well
	starting   = time.Second      // how long the first words of a pod wait for news
	calm       = 5 * time.Second  // how long other things do
	apart      = time.Second / 10 // two first words, at least: of many that start, most have more to tell soon
	patience   = 20 * time.Second // how long the first words of a pod wait for those of others besides
	firstRetry = time.Second / 2
	lastRetry  = time.Minute     // while the server fails, for half an hour and more
	refused    = 5 * time.Minute // at most, between tries of what the server refuses
)

// Config is what an Outbox needs.
type Config struct {
	Client *kube.Client
	Node   string
	// NodeUID is that of the Node, which owns the mirror pods; empty while it is not
	// known: there are no mirror pods before.
	NodeUID func() types.UID
	// Wanted says whether the node knows a pod, as one to run or to end. It is called
	// without locks held.
	Wanted func(types.UID) bool
	// Spoken says whether all sources but the API server have told what they want; a
	// mirror pod of which no source knows stays until then.
	Spoken func() bool
	// Forget is called once nothing of a pod is left here and the API server knows.
	Forget func(ctx context.Context, uid types.UID) error
	Retry  <-chan struct{} // the server may answer again; nil: never said
	Log    *slog.Logger
}

// An Outbox is safe for concurrent use.
type Outbox struct {
	Config
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	pods    map[types.UID]*item            // of the API server
	mirrors map[types.NamespacedName]*item // of other sources
	listed  bool                           // the server has told all that it has
	busy    int
	pause   time.Time     // nothing is sent before
	asked   time.Time     // whatever else happens, as the server asked
	spoke   time.Time     // when first words were sent last
	trouble retry.Backoff // of the server
	heard   int           // signals of Retry
	offline bool          // nothing is sent before the next of them
}

// New starts nothing.
func New(c Config) (*Outbox, error) {
	if c.Client == nil || c.Node == "" || c.NodeUID == nil || c.Wanted == nil || c.Spoken == nil || c.Forget == nil {
		return nil, errors.New("outbox: a part of the configuration is missing")
	}
	return &Outbox{Config: c, trouble: retry.Backoff{First: firstRetry, Soon: lastRetry / 4, Most: lastRetry}, wake: make(chan struct{}, 1), pods: map[types.UID]*item{}, mirrors: map[types.NamespacedName]*item{}}, nil
}

// Put takes the newest status of a pod, with the pod as the node wants it. Neither is
// changed, and neither may change afterwards. It never blocks. At the start of the
// agent it is to be told all statuses that the store has. A pod that waits for the
// end of another one of its name has no status to tell yet.
func (o *Outbox) Put(p *v1.Pod, status *v1.PodStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.item(p)
	if it.manifest == nil || it.manifest.UID != p.UID { // a static pod that replaces another
		it.want = nil
	}
	it.manifest = p
	it.ends = over(status)
	if d := urgency(it.want, status); it.ending() {
		it.soon(max(d, starting))
	} else {
		it.soon(d)
	}
	it.want, it.begins = status, fresh(status)
	o.signal()
}

// Finish says that nothing of a pod is left here. What has to be told is told, then the
// pod is forgotten: at once if the API server has no part in it, else once that knows.
func (o *Outbox) Finish(ctx context.Context, p *v1.Pod) error {
	if !fromAPI(p) {
		o.mu.Lock()
		if it, ok := o.mirrors[nameOf(p)]; ok && it.manifest != nil && it.manifest.UID == p.UID {
			it.manifest, it.want = nil, nil
			it.soon(0)
			o.signal()
		}
		o.mu.Unlock()
		return o.Forget(ctx, p.UID)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.item(p)
	it.finish = true
	it.soon(0)
	o.signal()
	return nil
}

// Pending is how many pods have something that the API server does not know yet.
func (o *Outbox) Pending() (n int) {
	o.mu.Lock()
	listed, all := o.listed, o.all()
	for i, it := range all {
		c := *it
		all[i] = &c
	}
	o.mu.Unlock()
	for _, it := range all {
		if it.pending(listed) {
			n++
		}
	}
	return n
}

func fromAPI(p *v1.Pod) bool { return p.Annotations[keys.ConfigSource] == keys.SourceAPI }

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// item gives the item of a pod as the node wants it. The caller holds mu.
func (o *Outbox) item(p *v1.Pod) *item {
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

func (o *Outbox) all() (all []*item) {
	for _, it := range o.pods {
		all = append(all, it)
	}
	for _, it := range o.mirrors {
		all = append(all, it)
	}
	return all
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run sends until ctx ends.
func (o *Outbox) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, wait := o.next()
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
		case <-o.Retry:
			o.mu.Lock()
			o.pause, o.offline = o.asked, false
			o.heard++
			o.mu.Unlock()
		}
	}
}

// next gives what is to be sent now, marked as busy, and when to ask again.
func (o *Outbox) next() (due []*item, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, most := time.Now(), parallel
	if o.trouble.Failing() {
		most = 1
	}
	later := func(at time.Time) {
		if d := max(at.Sub(now), time.Millisecond); wait == 0 || d < wait {
			wait = d
		}
	}
	take := func(it *item) {
		o.busy++
		it.busy, it.due = true, time.Time{}
		due = append(due, it)
	}
	var last []*item
	for _, it := range o.all() {
		switch {
		case it.busy || it.due.IsZero() || !o.listed || o.offline:
		case now.Before(o.pause):
			later(o.pause)
		case now.Before(it.due):
			later(it.due)
		case (it.starts() || it.ending()) && now.Before(it.due.Add(patience)):
			later(it.due.Add(patience))
			last = append(last, it)
		case o.busy < most:
			take(it)
		}
	}
	switch turn := o.spoke.Add(apart); {
	case len(last) == 0 || o.busy > 0: // most of them have started before their turn comes
	case now.Before(turn):
		later(turn)
	default:
		o.spoke = now
		take(last[0])
	}
	return due, wait
}

// send does what is next for one item.
func (o *Outbox) send(ctx context.Context, it *item) {
	o.mu.Lock()
	heard := o.heard
	o.mu.Unlock()
	err := o.sync(ctx, it)
	o.mu.Lock()
	defer o.mu.Unlock()
	it.busy = false
	o.busy--
	switch {
	case ctx.Err() != nil:
	case err == nil:
		it.tries = 0
		o.trouble.Reset()
	case refusal(err):
		o.trouble.Reset()
		it.tries++
		it.soon(min(firstRetry<<min(it.tries, 12), refused))
		o.Log.Warn("the API server refuses the status of a pod, trying again", "pod", it.name.String(), "uid", it.uid, "tries", it.tries, "error", err)
	case errors.Is(err, kube.ErrNoLink) && o.Retry != nil:
		it.soon(0)
		o.offline = o.heard == heard // else the link changed meanwhile
	default:
		it.soon(0)
		if now := time.Now(); !now.Before(o.pause) {
			if !o.trouble.Failing() {
				o.Log.Warn("the API server cannot be reached with the status of pods, trying again", "pod", it.name.String(), "uid", it.uid, "error", err)
			}
			asked := kube.RetryAfter(err)
			o.asked, o.pause = now.Add(asked), now.Add(o.trouble.Next(asked))
		}
	}
	o.drop(it)
	o.signal()
}
