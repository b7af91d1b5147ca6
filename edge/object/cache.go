package object

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
)

// How changes of ConfigMaps and Secrets are found, as the field
// configMapAndSecretChangeDetectionStrategy of the KubeletConfiguration has it.
const (
	Watch = "Watch" // at once, and for no bytes while nothing changes
	TTL   = "Cache" // by reading them again each minute, and for each new pod
	Get   = "Get"   // like Cache, and before each start of a container
)

// patience is how long a pod waits for what is known to be read again.
const patience = 5 * time.Second

// A Store keeps everything over a restart. *store.Store is one.
type Store interface {
	Objects(ctx context.Context) ([]store.Object, error)
	PutObject(ctx context.Context, o store.Object) error
	RemoveObjects(ctx context.Context, keys ...store.ObjectKey) error
	VoidObjects(ctx context.Context) error
	Tokens(ctx context.Context) ([]store.Token, error)
	PutToken(ctx context.Context, t store.Token) error
}

// Config is what a Cache needs.
type Config struct {
	Client   *kube.Client
	Store    Store
	Node     string           // the name of this node
	Strategy string           // Watch, TTL or Get; empty: Watch
	Every    time.Duration    // about how often a claim is read whose volume may grow; 0: 80 s
	Changed  func(types.UID)  // something that the pod uses has changed; must not block
	Touched  func()           // something at rest was read again; must not block; may be nil
	Now      func() time.Time // by which tokens expire; nil: time.Now
	Log      *slog.Logger
}

// A Problem is something that a pod uses and that cannot be had as it should be.
type Problem struct {
	UID     types.UID // of the pod
	Object  string    // such as "Secret default/wifi"
	Message string
	// Known says that it is an object that was read before; it is used as it was then.
	Known bool
}

// A Cache has the objects of this node's pods. All methods may be called from any
// goroutine.
type Cache struct {
	cfg    Config
	kinds  map[string]*kind
	signal chan struct{} // capacity 1: some item needs its goroutine
	tokens *tokens
	born   time.Time
	phase  float64 // 0 to 1: where beats begin

	mu      sync.Mutex
	epoch   int // counts the calls of Void
	items   map[store.ObjectKey]*item
	pending []*item // have no goroutine yet
	pods    map[types.UID]map[store.ObjectKey]bool
}

// New starts nothing.
func New(cfg Config) *Cache {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Touched == nil {
		cfg.Touched = func() {}
	}
	cfg.Strategy = cmp.Or(cfg.Strategy, Watch)
	return &Cache{
		cfg: cfg, kinds: kinds(cfg.Node), signal: make(chan struct{}, 1), tokens: newTokens(&cfg),
		born: time.Now(), phase: rand.Float64(),
		items: map[store.ObjectKey]*item{}, pods: map[types.UID]map[store.ObjectKey]bool{},
	}
}

// Load takes over what the last run of the agent knew for the pods that this node
// has, and forgets what none of them names. It is called once, before anything else.
func (c *Cache) Load(ctx context.Context, pods []*v1.Pod) error {
	objects, err := c.cfg.Store.Objects(ctx)
	if err != nil {
		return err
	}
	tokens, err := c.cfg.Store.Tokens(ctx)
	if err != nil {
		return err
	}
	var todo []store.ObjectKey
	for _, pod := range pods {
		todo = slices.AppendSeq(todo, maps.Keys(referencesOf(pod).objects))
	}
	stored := map[store.ObjectKey]store.Object{}
	for _, o := range objects {
		stored[o.ObjectKey] = o
	}
	c.mu.Lock()
	for len(todo) > 0 {
		o, there := stored[todo[0]]
		k, known := c.kinds[o.Kind]
		if todo = todo[1:]; !there || !known {
			continue
		}
		delete(stored, o.ObjectKey)
		it := c.item(o.ObjectKey)
		now := k.empty()
		if err := now.Unmarshal(o.Data); err != nil {
			c.cfg.Log.Error("a stored object cannot be decoded, it is fetched anew", "object", it.String(), "error", err)
			continue
		}
		it.content, it.version, it.gone = now, o.Version, o.Gone
		it.answer()
		todo = append(todo, it.next()...)
		todo = append(todo, it.perhaps()...)
	}
	c.mu.Unlock()
	unused := slices.Collect(maps.Keys(stored))
	c.tokens.load(tokens)
	for _, pod := range pods {
		c.register(pod, true)
	}
	return c.cfg.Store.RemoveObjects(ctx, unused...)
}

// Run keeps everything up to date until ctx ends and all that it started has.
func (c *Cache) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.tokens.run(ctx) })
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		c.mu.Lock()
		next := c.wake(time.Now())
		for _, it := range c.pending {
			if it.dropped {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			it.stop = stop
			all.Go(func() {
				defer stop()
				c.follow(ctx, it)
			})
		}
		c.pending = nil
		c.mu.Unlock()
		if next.IsZero() {
			due.Stop()
		} else {
			due.Reset(time.Until(next))
		}
		select {
		case <-c.signal:
		case <-due.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// wake gives what has rested its goroutine back, and says when the next is due; zero: nothing
// rests. The caller holds mu.
func (c *Cache) wake(now time.Time) (next time.Time) {
	for _, it := range c.items {
		switch {
		case !it.rests:
		case !it.due.After(now):
			it.rests = false
			c.pending = append(c.pending, it)
		case next.IsZero() || it.due.Before(next):
			next = it.due
		}
	}
	return next
}

// Name is the hook's.
func (*Cache) Name() string { return "objects" }

// Prepare takes up a pod, and waits until all that it names is known, or known to be
// out of reach: who reads it gets the reason. What was known before is not waited for.
func (c *Cache) Prepare(ctx context.Context, pod *v1.Pod) error {
	waits, fresh := c.register(pod, false)
	if static(pod) {
		return nil
	}
	var all sync.WaitGroup
	for k := range referencesOf(pod).tokens {
		all.Go(func() { _ = c.tokens.obtain(ctx, k, false) })
	}
	defer all.Wait()
	if err := wait(ctx, waits); err != nil {
		return err
	}
	if err := waitSoon(ctx, fresh); err != nil {
		return err
	}
	return c.waitChain(ctx, pod.UID)
}

// waitSoon waits for what is known to be read again, or does with what is known.
func waitSoon(ctx context.Context, fresh []<-chan struct{}) error {
	if len(fresh) == 0 {
		return nil
	}
	soon, stop := context.WithTimeout(ctx, patience)
	defer stop()
	_ = wait(soon, fresh)
	return ctx.Err()
}

func wait(ctx context.Context, all []<-chan struct{}) error {
	for _, w := range all {
		select {
		case <-w:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Release forgets a pod and what only it named.
func (c *Cache) Release(ctx context.Context, uid types.UID) error {
	c.tokens.forget(uid)
	c.mu.Lock()
	var unused []store.ObjectKey
	for k := range c.pods[uid] {
		it := c.items[k]
		if delete(it.users, uid); len(it.users) > 0 {
			continue
		}
		it.dropped = true
		if it.stop != nil {
			it.stop()
		}
		delete(c.items, k)
		unused = append(unused, k)
	}
	delete(c.pods, uid)
	c.mu.Unlock()
	return c.cfg.Store.RemoveObjects(ctx, unused...)
}

// Retry asks again for what could not be had: the link is up.
func (c *Cache) Retry() {
	c.tokens.retry()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range c.items {
		if it.err != nil {
			it.ask()
		}
	}
}

// Problems gives all there are: objects that cannot be read although a pod needs
// them, and tokens that are stale.
func (c *Cache) Problems() []Problem {
	all := c.tokens.problems()
	c.mu.Lock()
	for _, it := range c.items {
		if it.err == nil {
			continue
		}
		for uid := range it.users {
			all = append(all, Problem{UID: uid, Object: it.String(), Message: it.err.Error(), Known: it.known()})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Object, b.Object))
	})
	return all
}

// register notes what a pod names and gives what to wait for before it can be read,
// and what would make it fresh. had says that the pod had what is known already.
func (c *Cache) register(pod *v1.Pod, had bool) (waits, fresh []<-chan struct{}) {
	r := referencesOf(pod)
	c.tokens.register(pod, r.tokens, had)
	c.mu.Lock()
	defer c.mu.Unlock()
	uses := c.pods[pod.UID]
	if uses == nil {
		uses = map[store.ObjectKey]bool{}
		c.pods[pod.UID] = uses
	}
	for k := range r.objects {
		it := c.item(k)
		isNew := !uses[k]
		if isNew {
			uses[k] = true
			it.users[pod.UID] = it.has() && (had || !it.gone)
			c.chainOf(pod.UID, it, had)
		}
		if !it.known() {
			waits = append(waits, it.answered)
		} else if c.polls(it.kind) && !had && (isNew || c.cfg.Strategy == Get && it.kind.get == nil) {
			fresh = append(fresh, it.ask())
		}
	}
	if !had {
		fresh = append(fresh, c.unsettled(pod.UID)...)
	}
	return waits, fresh
}

// polls reports whether objects of a kind are read again and again instead of
// watched.
func (c *Cache) polls(k *kind) bool { return k.get != nil || c.cfg.Strategy != Watch && !k.always }

// item finds or makes one. The caller holds mu.
func (c *Cache) item(k store.ObjectKey) *item {
	it := c.items[k]
	if it == nil {
		it = newItem(k, c.kinds[k.Kind], c.signal)
		c.items[k] = it
		c.pending = append(c.pending, it)
		poke(c.signal)
	}
	return it
}

// poke has Run look for what needs a goroutine.
func poke(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

var errUnread = errors.New("it has not been read yet")
