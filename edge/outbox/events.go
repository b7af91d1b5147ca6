package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	component = "kubelet" // as which events are told, so that what people filter by works

	maxEvents    = 1024 // kept in memory, four for each of 250 pods; the oldest go first
	perObject    = 25   // distinct or repeated events of an object that are sent at once
	refill       = 5 * time.Minute
	recentEvents = 20               // of an object, given by Recent
	repeatEvery  = 5 * time.Second  // how often the count of one event is told, at most
	similar      = 10 * time.Minute // in which events of an object and reason are alike
	mostAlike    = 10               // of these, before they are told as one
)

// EventsConfig is what an Events needs.
type EventsConfig struct {
	Client *kube.Client // nil: events are only kept for Recent
	Node   string
	QPS    float64 // eventRecordQPS, a bound of their own; 0: none
	Burst  int     // eventBurst
	Retry  <-chan struct{}
	Now    func() time.Time // nil: time.Now. The clock that others are told
	Store  EventStore       // nil: the events end with the agent
	// Spare reports that the disk is to be spared: events are stored more seldom then. Nil:
	// never.
	Spare func() bool
	Log   *slog.Logger
}

// Events records what happens to pods and the node, in the words of a kubelet. It is
// safe for concurrent use. A bounded number is kept. Those that the API server does not
// know, and warnings, are stored after some seconds, many at once, and so outlive the
// agent; what was told before that is not written.
type Events struct {
	EventsConfig
	wake    chan struct{} // capacity 1
	changed chan struct{} // capacity 1: there may be something to store
	wrote   time.Time     // keep's: when it last did
	failing bool          // the store did

	mu      sync.Mutex
	kept    []*record                   // oldest first
	of      map[types.UID][]*record     // the same, by object: what happens is compared with that object's
	removed []string                    // names of events that are not kept any more, and still stored
	objects map[types.UID]*rate.Limiter // how many events of an object are told
	names   int64
	seq     int64 // of the newest
	dropped int
	sent    time.Time // when the server last took an event
}

// A record is one event, however often it happened. It is what events differ in: there are
// some for each pod, and a v1.Event takes three times as much memory.
type record struct {
	key                           eventKey
	name, message                 string
	object, namespace, objectKind string // what it is about
	annotations                   map[string]string
	count                         int32
	told                          int32     // the count that the server knows; 0: nothing of it
	mute                          bool      // its object has used up its budget
	firstSecond, lastSecond       int64     // since 1970, by the clock that others are told
	last                          time.Time // when it happened last
	next                          time.Time

	seq    int64
	stored stored
}

// recordOf takes what events differ in.
func recordOf(ev *v1.Event) *record {
	o := ev.InvolvedObject
	return &record{
		key:  eventKey{o.UID, o.FieldPath, ev.Type, ev.Reason, ev.Message},
		name: ev.Name, message: ev.Message, object: o.Name, namespace: o.Namespace, objectKind: o.Kind, annotations: ev.Annotations,
		count: ev.Count, firstSecond: ev.FirstTimestamp.Unix(), lastSecond: ev.LastTimestamp.Unix(),
	}
}

// event is what a record is as an object of the API.
func (e *Events) event(r *record) *v1.Event {
	return &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: r.eventNamespace(), Name: r.name, Annotations: maps.Clone(r.annotations)},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: r.objectKind, Namespace: r.namespace, Name: r.object, UID: r.key.uid, FieldPath: r.key.field},
		Type:           r.key.kind, Reason: r.key.reason, Message: r.message, Count: r.count,
		FirstTimestamp: metav1.Unix(r.firstSecond, 0), LastTimestamp: metav1.Unix(r.lastSecond, 0),
		Source: v1.EventSource{Component: component, Host: e.EventsConfig.Node}, ReportingController: component, ReportingInstance: e.EventsConfig.Node,
	}
}

// eventNamespace is where events of an object are: those of a node in the default one.
func (r *record) eventNamespace() string { return cmp.Or(r.namespace, metav1.NamespaceDefault) }

type eventKey struct {
	uid                          types.UID
	field, kind, reason, message string
}

// NewEvents takes over what is stored, and starts nothing.
func NewEvents(c EventsConfig) (*Events, error) {
	if c.Node == "" || c.Log == nil {
		return nil, errors.New("events: a part of the configuration is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	e := &Events{EventsConfig: c, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), of: map[types.UID][]*record{}, objects: map[types.UID]*rate.Limiter{}}
	if c.Store != nil {
		if err := e.load(context.Background()); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Pod notes an event of a pod, or of one of its containers if that is named. The type
// is v1.EventTypeNormal or v1.EventTypeWarning; reasons are the kubelet's.
func (e *Events) Pod(p *v1.Pod, container, eventType, reason, message string) {
	e.add(v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, FieldPath: fieldPath(p, container)}, nil, eventType, reason, message)
}

// PodWith is Pod for an event with annotations.
func (e *Events) PodWith(annotations map[string]string, p *v1.Pod, eventType, reason, message string) {
	e.add(v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}, annotations, eventType, reason, message)
}

// Node notes an event of the node. As with a kubelet, its name stands for its UID.
func (e *Events) Node(eventType, reason, message string) {
	e.add(v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.EventsConfig.Node, UID: types.UID(e.EventsConfig.Node)}, nil, eventType, reason, message)
}

func fieldPath(p *v1.Pod, container string) string {
	if container == "" {
		return ""
	}
	kind, c := podspec.Find(&p.Spec, container)
	switch {
	case c == nil || kind == podspec.Main:
		return "spec.containers{" + container + "}"
	case kind == podspec.Ephemeral:
		return "spec.ephemeralContainers{" + container + "}"
	}
	return "spec.initContainers{" + container + "}"
}

func (e *Events) add(about v1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	second := e.Now().Unix()
	key := eventKey{about.UID, about.FieldPath, eventType, reason, message}
	if e.alike(key, now) >= mostAlike {
		key.message = ""
		message = combined + message
	}
	affordable := e.spend(about.UID, now)
	same := e.of[key.uid]
	if i := slices.IndexFunc(same, func(r *record) bool { return r.key == key }); i >= 0 {
		r := same[i]
		r.count++
		r.lastSecond, r.message = second, message
		r.last, r.mute = now, !affordable
		e.seq++
		r.seq = e.seq
		e.remove(r)
		e.put(r)
	} else {
		e.names++
		e.seq++
		e.put(&record{
			key: key, name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()+e.names), message: message,
			object: about.Name, namespace: about.Namespace, objectKind: about.Kind, annotations: annotations,
			count: 1, firstSecond: second, lastSecond: second, last: now, seq: e.seq, mute: !affordable,
		})
	}
	e.drop()
	for _, c := range []chan struct{}{e.wake, e.changed} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// put keeps an event, as the newest. The caller holds mu.
func (e *Events) put(r *record) {
	e.kept = append(e.kept, r)
	e.of[r.key.uid] = append(e.of[r.key.uid], r)
}

// remove keeps an event no more. The caller holds mu.
func (e *Events) remove(r *record) {
	is := func(other *record) bool { return other == r }
	e.kept = slices.DeleteFunc(e.kept, is)
	if e.of[r.key.uid] = slices.DeleteFunc(e.of[r.key.uid], is); len(e.of[r.key.uid]) == 0 {
		delete(e.of, r.key.uid)
	}
}

// alike counts the events that differ from one in their message only.
func (e *Events) alike(key eventKey, now time.Time) (n int) {
	for _, r := range e.of[key.uid] {
		k := r.key
		if k.message == key.message {
			if k == key { // a repeated one is no other
				return 0
			}
			continue
		}
		k.message = key.message
		if k == key && !r.last.IsZero() && now.Sub(r.last) < similar {
			n++
		}
	}
	return n
}

// spend takes from the budget of an object.
func (e *Events) spend(uid types.UID, now time.Time) bool {
	b, ok := e.objects[uid]
	if !ok {
		if len(e.objects) > maxEvents { // those that are full again need no memory
			maps.DeleteFunc(e.objects, func(_ types.UID, b *rate.Limiter) bool { return b.TokensAt(now) >= perObject })
		}
		b = rate.NewLimiter(rate.Every(refill), perObject)
		e.objects[uid] = b
	}
	return b.AllowN(now, 1)
}

// Recent gives the last events of an object, oldest first.
func (e *Events) Recent(uid types.UID) (all []v1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.of[uid] {
		all = append(all, *e.event(r))
	}
	return all[max(0, len(all)-recentEvents):]
}

// All gives the events of every object that are kept, oldest first.
func (e *Events) All() (all []v1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.kept {
		all = append(all, *e.event(r))
	}
	return all
}

// Run sends and stores events until ctx ends.
func (e *Events) Run(ctx context.Context) error {
	var storing sync.WaitGroup
	defer storing.Wait()
	if e.Store != nil {
		storing.Go(func() { e.keep(ctx) })
	}
	if e.Client == nil {
		<-ctx.Done()
		return nil
	}
	return e.tell(kube.Unbound(ctx))
}

// tell sends events until ctx ends.
func (e *Events) tell(ctx context.Context) error {
	tokens := rate.NewLimiter(rate.Inf, 0)
	if e.QPS > 0 {
		tokens = rate.NewLimiter(rate.Limit(e.QPS), max(e.Burst, 1))
	}
	again := retry.Backoff{First: firstRetry, Soon: lastRetry / 4, Most: lastRetry}
	for {
		r, wait := e.next()
		if r != nil {
			if wait = take(tokens); wait == 0 {
				if err := e.send(ctx, r); err != nil {
					e.Log.Debug("an event could not be sent, trying again", "error", err)
					if _, ended := kube.Wait(ctx, &again, err, e.Retry); ended != nil {
						return nil
					}
				} else {
					again.Reset()
				}
				continue
			}
		}
		if !e.sleep(ctx, wait, r != nil) {
			return nil
		}
	}
}

// sleep waits, and unless a failure has to be waited out also ends with news.
func (e *Events) sleep(ctx context.Context, d time.Duration, deaf bool) bool {
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	news := e.wake
	if deaf {
		news = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-news:
	case <-e.Retry:
	case <-after:
	}
	return true
}

// next gives a copy of the oldest event that is to be told, or says when to ask again.
func (e *Events) next() (*record, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, wait := time.Now(), time.Duration(0)
	yields := e.yields(now)
	in := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	for _, r := range e.kept {
		switch {
		case r.mute || r.told == r.count:
		case now.Before(r.next):
			in(r.next.Sub(now))
		case yields > 0 && r.key.kind == v1.EventTypeNormal:
			in(yields)
		default:
			c := *r
			return &c, 0
		}
	}
	return nil, wait
}

// send makes an event, or tells its new count. One that the server refuses is given up.
func (e *Events) send(ctx context.Context, r *record) error {
	var err error
	if r.told > 0 {
		err = e.patch(ctx, r)
	}
	if r.told == 0 || apierrors.IsNotFound(err) { // events live for an hour only
		_, err = kube.Create(ctx, e.Client, e.event(r))
	}
	if r.told == 0 && apierrors.IsAlreadyExists(err) { // told by an agent that ended before it noted that
		err = e.patch(ctx, r)
	}
	if err != nil && !refusal(err) {
		return err
	}
	if err != nil {
		e.Log.Debug("the API server refuses an event", "reason", r.key.reason, "object", r.object, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = time.Now()
	for _, k := range e.kept {
		if k.key == r.key && k.name == r.name {
			k.told, k.next = r.count, time.Now().Add(repeatEvery)
			if k.stored.there {
				select {
				case e.changed <- struct{}{}:
				default:
				}
			}
		}
	}
	return nil
}

// patch tells the new count of an event.
func (e *Events) patch(ctx context.Context, r *record) error {
	data, err := json.Marshal(map[string]any{"count": r.count, "lastTimestamp": metav1.Unix(r.lastSecond, 0), "message": r.message})
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	_, err = kube.Patch[v1.Event](ctx, e.Client, r.eventNamespace(), r.name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	return err
}

// take takes a token and gives 0, or says how long to wait for the next one.
func take(tokens *rate.Limiter) time.Duration {
	r := tokens.Reserve()
	wait := r.Delay()
	if wait > 0 {
		r.Cancel()
	}
	return wait
}
