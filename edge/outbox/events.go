package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	eventSource = "kubelet" // source of the events, as in a kubelet, so that users can filter by it

	maxEvents     = 1024             // maximum number of events in memory: four for each of 250 pods; the oldest events are dropped
	recentEvents  = 20               // maximum number of events that Recent returns
	repeatEvery   = 5 * time.Second  // minimum interval between updates of an event's count
	similarWindow = 10 * time.Minute // time window for events of an object that differ only in their message
	maxSimilar    = 10               // number of such events after which further ones are combined
)

// EventsConfig contains the dependencies and settings of an Events.
type EventsConfig struct {
	Client *kube.Client // nil if events are not sent
	Node   string
	// NodeUID returns the UID of the Node, or "" if it is unknown. It may be nil.
	NodeUID func() types.UID
	QPS     float64 // eventRecordQPS, separate from the client's limit; 0 means unlimited
	Burst   int     // eventBurst
	Retry   kube.LinkSignal
	Now     func() time.Time // wall clock of the events' times; the default is time.Now
	Store   EventStore       // nil if events are lost when the agent ends
	// SaveWrites reports whether writes to the disk should be avoided. While it returns true, events are stored less often. It may be nil.
	SaveWrites func() bool
	Log        *slog.Logger
}

// Events records events of pods and of the node, with a kubelet's reasons and messages. It is safe for concurrent use. The number of events
// is limited. Warnings, and events that the API server does not have yet, are stored and survive a restart. They are stored some seconds
// later, many in one write. A normal event that was sent in the meantime is not stored.
type Events struct {
	EventsConfig
	wake    chan struct{} // capacity 1
	changed chan struct{} // capacity 1; a value means that there may be an event to store
	wrote   time.Time     // time of the last write to the store; used only by keep
	failing bool          // the last write failed

	mu          sync.Mutex
	records     []*record               // oldest first
	byObject    map[types.UID][]*record // the events in kept, by object
	removed     []string                // names of dropped events that the store still has
	budgets     map[budgetKey]*rate.Limiter
	nameCounter int64
	seq         int64 // sequence number of the newest event
	dropped     int
	sent        time.Time // time when the server last accepted an event
	holds       holds
}

// NewEvents loads the stored events. It starts no goroutine.
func NewEvents(c EventsConfig) (*Events, error) {
	if c.Node == "" || c.Log == nil {
		return nil, errors.New("events: a part of the configuration is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	e := &Events{
		EventsConfig: c, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		byObject: map[types.UID][]*record{}, budgets: map[budgetKey]*rate.Limiter{},
	}
	if c.Store != nil {
		if err := e.load(context.Background()); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Pod records an event of a pod, or of one of its containers if a container is given. The type of the event is v1.EventTypeNormal or
// v1.EventTypeWarning. The reasons are the same as in a kubelet.
func (e *Events) Pod(p *v1.Pod, container, eventType, reason, message string) {
	about := podReference(p)
	about.FieldPath = fieldPath(p, container)
	e.add(about, withMirrorName(nil, p), eventType, reason, message)
}

// PodWith is like Pod. It also sets annotations of the event.
func (e *Events) PodWith(annotations map[string]string, p *v1.Pod, eventType, reason, message string) {
	e.add(podReference(p), withMirrorName(annotations, p), eventType, reason, message)
}

func podReference(p *v1.Pod) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// Record records an event of the Node object. Its type is Warning or Normal.
func (e *Events) Record(warning bool, reason, message string) {
	kind := v1.EventTypeNormal
	if warning {
		kind = v1.EventTypeWarning
	}
	e.Node(kind, reason, message)
}

// Node records an event of the node. The event refers to the UID of the Node, or to the node's name if the UID is unknown, as in a kubelet.
func (e *Events) Node(eventType, reason, message string) {
	about := v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.EventsConfig.Node, UID: types.UID(e.EventsConfig.Node)}
	if f := e.EventsConfig.NodeUID; f != nil {
		about.UID = cmp.Or(f(), about.UID)
	}
	e.add(about, nil, eventType, reason, message)
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
	if e.countSimilar(key, now) >= maxSimilar {
		key.message = ""
		message = combinedPrefix + message
	}
	affordable := e.spendBudget(budgetKey{about.UID, eventType}, now)
	same := e.byObject[key.uid]
	if i := slices.IndexFunc(same, func(r *record) bool { return r.key == key }); i >= 0 {
		r := same[i]
		pending := r.sentCount != r.count && !r.overBudget // an event that still has to be sent is sent with its newest count
		r.count++
		r.lastSecond, r.message = second, message
		r.last, r.overBudget = now, !affordable && !pending
		e.seq++
		r.seq = e.seq
		e.remove(r)
		e.put(r)
	} else {
		e.nameCounter++
		e.seq++
		e.put(&record{
			key: key, name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()+e.nameCounter), message: message,
			object: about.Name, namespace: about.Namespace, objectKind: about.Kind, annotations: annotations,
			count: 1, firstSecond: second, lastSecond: second, last: now, seq: e.seq, overBudget: !affordable,
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

// put adds an event to the end of the list, as the newest event. The caller must hold mu.
func (e *Events) put(r *record) {
	e.records = append(e.records, r)
	e.byObject[r.key.uid] = append(e.byObject[r.key.uid], r)
}

// remove removes an event. The caller must hold mu.
func (e *Events) remove(r *record) {
	is := func(other *record) bool { return other == r }
	e.records = slices.DeleteFunc(e.records, is)
	e.byObject[r.key.uid] = slices.DeleteFunc(e.byObject[r.key.uid], is)
	if len(e.byObject[r.key.uid]) == 0 {
		delete(e.byObject, r.key.uid)
	}
}

// countSimilar counts the recent events whose key is the same except for the message. If an event has exactly the same key, countSimilar
// returns 0. The new event is then a repetition of that event, and repetitions are not combined with similar events.
func (e *Events) countSimilar(key eventKey, now time.Time) (n int) {
	for _, r := range e.byObject[key.uid] {
		k := r.key
		if k.message == key.message {
			if k == key { // repeated events are not combined
				return 0
			}
			continue
		}
		k.message = key.message
		if k == key && !r.last.IsZero() && now.Sub(r.last) < similarWindow {
			n++
		}
	}
	return n
}

// Recent returns the last events of an object, the oldest first.
func (e *Events) Recent(uid types.UID) (list []v1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.byObject[uid] {
		list = append(list, *e.toEvent(r))
	}
	return list[max(0, len(list)-recentEvents):]
}

// All returns all events in memory, the oldest first.
func (e *Events) All() (list []v1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.records {
		list = append(list, *e.toEvent(r))
	}
	return list
}

// RecentNode returns the last events of the node. They include events that were recorded before the UID of the Node was known.
func (e *Events) RecentNode() []v1.Event {
	list := slices.DeleteFunc(e.All(), func(ev v1.Event) bool { return ev.InvolvedObject.Kind != "Node" })
	return list[max(0, len(list)-recentEvents):]
}

// Run sends and stores events until ctx ends.
func (e *Events) Run(ctx context.Context) error {
	var storing sync.WaitGroup
	defer storing.Wait()
	if e.Store != nil {
		storing.Go(func() { e.writeChanges(ctx) })
	}
	if e.Client == nil {
		<-ctx.Done()
		return nil
	}
	return e.sendAll(kube.WithoutRateLimit(ctx))
}

// sendAll sends events to the API server until ctx ends.
func (e *Events) sendAll(ctx context.Context) error {
	tokens := rate.NewLimiter(rate.Inf, 0)
	if e.QPS > 0 {
		tokens = rate.NewLimiter(rate.Limit(e.QPS), max(e.Burst, 1))
	}
	again := retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry}
	for {
		r, wait := e.nextToSend()
		if r != nil {
			if wait = takeToken(tokens); wait == 0 {
				if err := e.send(ctx, r); err != nil {
					e.Log.Debug("an event could not be sent and is retried", "error", err)
					if e.postpone(r, err) {
						continue
					}
					woken, ended := kube.WaitForRetry(ctx, &again, err, e.Retry)
					if ended != nil {
						return nil
					}
					if woken {
						e.endHolds()
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

// sleep waits until d has passed, a retry signal arrives, or an event is added. The caller can exclude added events. It returns false if
// ctx has ended.
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
	case <-e.Retry.C:
		e.endHolds()
	case <-after:
	}
	return true
}

// nextToSend returns a copy of the oldest event that is due. It prefers events that have not failed. If no event is due, it returns the
// time until the next call.
func (e *Events) nextToSend() (*record, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, wait := time.Now(), time.Duration(0)
	yields := e.rushDelay(now)
	in := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	var failed *record
	for _, r := range e.records {
		switch {
		case r.overBudget || r.sentCount == r.count:
		case now.Before(e.heldUntil(r, now)):
			in(e.heldUntil(r, now).Sub(now))
		case yields > 0 && r.key.kind == v1.EventTypeNormal:
			in(yields)
		case r.tries > 0:
			if failed == nil || e.compareFailed(r, failed) < 0 {
				failed = r
			}
		default:
			c := *r
			return &c, 0
		}
	}
	if failed != nil {
		c := *failed
		return &c, 0
	}
	return nil, wait
}

// send creates an event, or updates its count. An event that the server rejects is not sent again.
func (e *Events) send(ctx context.Context, r *record) error {
	var err error
	if r.sentCount > 0 {
		err = e.patch(ctx, r)
	}
	if r.sentCount == 0 || apierrors.IsNotFound(err) { // the server may have removed the event, because it keeps events for an hour
		_, err = kube.Create(ctx, e.Client, e.eventForServer(r))
	}
	if r.sentCount == 0 && apierrors.IsAlreadyExists(err) { // the event was sent before a restart, but this was not stored
		err = e.patch(ctx, r)
	}
	if err != nil && !isRefusal(err) {
		return err
	}
	if err != nil {
		e.Log.Debug("the API server rejects an event", "reason", r.key.reason, "object", r.object, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = time.Now()
	if err == nil {
		e.holds.accept(r.eventNamespace(), r.tries > 0, e.sent)
	}
	if k := e.original(r); k != nil {
		k.tries, k.refused, k.givenUp = 0, 0, false
		e.markSent(k, r.count)
	}
	return nil
}

// patch updates the count of an event.
func (e *Events) patch(ctx context.Context, r *record) error {
	data, err := json.Marshal(map[string]any{"count": r.count, "lastTimestamp": metav1.Unix(r.lastSecond, 0), "message": r.message})
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	_, err = kube.Patch[v1.Event](ctx, e.Client, r.eventNamespace(), r.name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	return err
}

// takeToken takes a token of the rate limiter and returns 0. If no token is available, it returns the time until the next one.
func takeToken(tokens *rate.Limiter) time.Duration {
	r := tokens.Reserve()
	wait := r.Delay()
	if wait > 0 {
		r.Cancel()
	}
	return wait
}
