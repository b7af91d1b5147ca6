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
	"github.com/islet-edge/islet/internal/sorting"
)

// Strategies for detecting changes of ConfigMaps and Secrets. They are the values of
// configMapAndSecretChangeDetectionStrategy in the KubeletConfiguration.
const (
	Watch = "Watch" // watches the objects: changes arrive immediately, and there is no traffic without changes
	TTL   = "Cache" // reads the objects each minute, and for each new pod
	Get   = "Get"   // like "Cache", and also reads the objects before each start of a container
)

// updateTimeout is the maximum time that a pod waits for an update of known objects.
const updateTimeout = 5 * time.Second

// A Store stores objects and tokens across restarts. *store.Store implements it.
type Store interface {
	Objects(ctx context.Context) ([]store.Object, error)
	PutObject(ctx context.Context, o store.Object) error
	RemoveObjects(ctx context.Context, keys ...store.ObjectKey) error
	VoidObjects(ctx context.Context) error
	Tokens(ctx context.Context) ([]store.Token, error)
	PutToken(ctx context.Context, t store.Token) error
	Volumes(ctx context.Context) ([]store.Volume, error)
	AddRewriter(table string, rewrite func(context.Context) error)
}

// Config contains the dependencies and settings of a Cache.
type Config struct {
	Client         *kube.Client
	Store          Store
	Node           string           // the name of this node
	Strategy       string           // Watch, TTL or Get; the default is Watch
	Every          time.Duration    // approximate interval between two reads of a claim whose volume may grow; the default is 80 s
	Changed        func(types.UID)  // called when an object or token of the pod has changed; must not block
	OnPeriodicTask func()           // called when an object was polled; must not block; may be nil
	Now            func() time.Time // clock for the expiry of tokens; the default is time.Now
	Log            *slog.Logger
}

// A Problem is an object or token of a pod that cannot be read or renewed.
type Problem struct {
	UID     types.UID // UID of the pod
	Object  string    // for example "Secret default/wifi"
	Message string
	// Known is true if an older version of the object is known. Pods use that version.
	Known bool
}

// A Cache reads and caches the objects and tokens that the pods of this node use. Its methods are safe for
// concurrent use.
type Cache struct {
	cfg    Config
	kinds  map[string]*kind
	signal chan struct{} // capacity 1; a value means that an item needs a goroutine
	tokens *tokens
	born   time.Time
	phase  float64 // random offset of the beats, from 0 to 1; see untilBeat

	storing sync.RWMutex // read-locked from a write to the store until the change is in memory; locked before mu

	mu      sync.Mutex
	epoch   int // number of calls of DropVersions
	items   map[store.ObjectKey]*item
	pending []*item // items that wait for Run to start their goroutines
	pods    map[types.UID]map[store.ObjectKey]bool
}

// New returns a Cache. It starts no goroutine.
func New(cfg Config) *Cache {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnPeriodicTask == nil {
		cfg.OnPeriodicTask = func() {}
	}
	cfg.Strategy = cmp.Or(cfg.Strategy, Watch)
	c := &Cache{
		cfg: cfg, kinds: allKinds(cfg.Node), signal: make(chan struct{}, 1), tokens: newTokens(&cfg),
		born: time.Now(), phase: rand.Float64(),
		items: map[store.ObjectKey]*item{}, pods: map[types.UID]map[store.ObjectKey]bool{},
	}
	cfg.Store.AddRewriter("objects", c.rewrite)
	return c
}

// Load restores the stored objects and tokens for the pods of this node. It deletes all other objects from the store. Call it once, before
// all other methods.
func (c *Cache) Load(ctx context.Context, pods []*v1.Pod) error {
	objects, err := c.cfg.Store.Objects(ctx)
	if err != nil {
		return err
	}
	tokens, err := c.cfg.Store.Tokens(ctx)
	if err != nil {
		return err
	}
	volumes, err := c.cfg.Store.Volumes(ctx)
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
		o, found := stored[todo[0]]
		k, exists := c.kinds[o.Kind]
		todo = todo[1:]
		if !found || !exists {
			continue
		}
		delete(stored, o.ObjectKey)
		it := c.findOrCreate(o.ObjectKey)
		now := k.newContent()
		if err := now.Unmarshal(o.Data); err != nil {
			c.cfg.Log.Error("a stored object cannot be decoded and is read again", "object", it.String(), "error", err)
			continue
		}
		it.content, it.version, it.gone = now, o.Version, o.Gone
		it.markAnswered()
		todo = append(todo, it.listReferences()...)
		todo = append(todo, it.optionalReferences()...)
	}
	c.mu.Unlock()
	unused := slices.Collect(maps.Keys(stored))
	c.tokens.load(tokens)
	for _, pod := range pods {
		c.register(pod, true)
		if !slices.ContainsFunc(volumes, func(v store.Volume) bool { return v.Pod == string(pod.UID) }) {
			c.markUnread(pod.UID)
		}
	}
	return c.cfg.Store.RemoveObjects(ctx, unused...)
}

// Run keeps all objects and tokens up to date until ctx ends. It returns after all its goroutines have
// ended.
func (c *Cache) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.tokens.run(ctx) })
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		c.mu.Lock()
		next := c.wakeParked(time.Now())
		for _, it := range c.pending {
			if it.dropped {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			it.stop = stop
			all.Go(func() {
				defer stop()
				c.followItem(ctx, it)
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

// wakeParked moves the parked items that are due to the pending items. It returns the time at which the next parked item is due, or zero
// if no item is parked. The caller must hold mu.
func (c *Cache) wakeParked(now time.Time) (next time.Time) {
	for _, it := range c.items {
		switch {
		case !it.parked:
		case !it.due.After(now):
			it.parked = false
			c.pending = append(c.pending, it)
		case next.IsZero() || it.due.Before(next):
			next = it.due
		}
	}
	return next
}

// Name returns the name of the hook.
func (*Cache) Name() string { return "objects" }

// Prepare registers the pod and waits for the first read of each object that the pod references. It does not wait for objects that are
// already known. A failed read is not an error of Prepare. The method that returns the object returns that error later.
func (c *Cache) Prepare(ctx context.Context, pod *v1.Pod) error {
	waits, fresh := c.register(pod, false)
	if isStatic(pod) {
		return nil
	}
	var all sync.WaitGroup
	for k := range referencesOf(pod).tokens {
		all.Go(func() { _ = c.tokens.obtainToken(ctx, k, false) })
	}
	defer all.Wait()
	if err := waitAll(ctx, waits); err != nil {
		return err
	}
	again := func() []<-chan struct{} { return c.requestUnread(pod.UID) }
	if err := waitBriefly(ctx, fresh, again); err != nil {
		return err
	}
	return c.waitChain(ctx, pod.UID)
}

// Fetch requests the objects and tokens of a pod that cannot start yet, so that it can start later without a link. It does not wait.
func (c *Cache) Fetch(pod *v1.Pod) {
	c.tokens.register(pod, referencesOf(pod).tokens, true)
	c.register(pod, false)
}

// waitBriefly waits for updates of known objects, and then for updates by further functions, at most for updateTimeout.
func waitBriefly(ctx context.Context, fresh []<-chan struct{}, then ...func() []<-chan struct{}) error {
	if len(fresh) == 0 {
		return nil
	}
	soon, stop := context.WithTimeout(ctx, updateTimeout)
	defer stop()
	_ = waitAll(soon, fresh)
	for _, next := range then {
		_ = waitAll(soon, next())
	}
	return ctx.Err()
}

func waitAll(ctx context.Context, all []<-chan struct{}) error {
	for _, w := range all {
		select {
		case <-w:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Release removes a pod, and the objects that no other pod uses.
func (c *Cache) Release(ctx context.Context, uid types.UID) error {
	c.tokens.forget(uid)
	c.storing.RLock()
	defer c.storing.RUnlock()
	c.mu.Lock()
	var unused []store.ObjectKey
	for k := range c.pods[uid] {
		it := c.items[k]
		delete(it.users, uid)
		delete(it.unread, uid)
		if len(it.users) > 0 {
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

// Retry repeats all failed reads. Call it when the link is up again.
func (c *Cache) Retry() {
	c.tokens.retry()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range c.items {
		if it.err != nil {
			it.requestRead()
		}
	}
}

// Problems returns all problems: objects of pods that cannot be read, and tokens that are missing or expired.
func (c *Cache) Problems() []Problem {
	all := c.tokens.listProblems()
	c.mu.Lock()
	for _, it := range c.items {
		if it.err == nil {
			continue
		}
		for uid := range it.users {
			all = append(all, Problem{UID: uid, Object: it.String(), Message: it.err.Error(), Known: it.isKnown()})
		}
	}
	c.mu.Unlock()
	sorting.By(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Object, b.Object))
	})
	return all
}

// register records the objects that a pod references. The first result contains a channel for each unknown object. When all these channels
// are closed, the pod can use its objects. The second result contains a channel for each known object that is read again. If ranBefore is
// true, the pod already ran before the agent started. Such a pod may also use objects that the server deleted while the pod ran.
func (c *Cache) register(pod *v1.Pod, ranBefore bool) (waits, fresh []<-chan struct{}) {
	r := referencesOf(pod)
	c.tokens.register(pod, r.tokens, ranBefore)
	c.mu.Lock()
	defer c.mu.Unlock()
	uses := c.pods[pod.UID]
	if uses == nil {
		uses = map[store.ObjectKey]bool{}
		c.pods[pod.UID] = uses
	}
	for k := range r.objects {
		it := c.findOrCreate(k)
		isNew := !uses[k]
		if isNew {
			uses[k] = true
			it.users[pod.UID] = it.exists() && (ranBefore || !it.gone)
			c.addReferencedOf(pod.UID, it, ranBefore)
		}
		if !it.isKnown() {
			waits = append(waits, it.firstAnswer)
			continue
		}
		if isNew && !ranBefore && k.Kind == claimKind {
			it.unread[pod.UID] = &firstRead{}
		}
		if c.isPolled(it.kind) && !ranBefore && (isNew || it.mustBeRead(pod.UID) || c.cfg.Strategy == Get && it.kind.get == nil) {
			fresh = append(fresh, it.requestRead())
		}
	}
	if !ranBefore {
		fresh = append(fresh, c.requestUnsettled(pod.UID)...)
	}
	return waits, fresh
}

// isPolled reports whether objects of a kind are read at intervals and not watched.
func (c *Cache) isPolled(k *kind) bool {
	return k.get != nil || c.cfg.Strategy != Watch && !k.alwaysWatched
}

// findOrCreate returns the item with the given key. It creates the item if necessary. The caller must hold mu.
func (c *Cache) findOrCreate(k store.ObjectKey) *item {
	it := c.items[k]
	if it == nil {
		it = newItem(k, c.kinds[k.Kind], c.signal)
		c.items[k] = it
		c.pending = append(c.pending, it)
		signalChannel(c.signal)
	}
	return it
}

// signalChannel wakes Run.
func signalChannel(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

var errUnread = errors.New("it has not been read yet")
