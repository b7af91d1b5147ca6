package brake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
)

const (
	// metaBrake is the key in the store under which the state is stored as JSON.
	metaBrake = "brake"
	// settleFor is the delay between the removal of a pod and a judgement of all pods. Garbage collection removes the pods of a Node one
	// after the other, so more removals may follow.
	settleFor = 5 * time.Second
	// lookEvery is the interval between two checks of a hold. A check tests whether the time limit is over, and whether the identity of the
	// control plane has changed since the hold was judged.
	lookEvery = time.Minute
	// storeHeldEvery is the interval at which the duration of a hold is stored. If the agent is killed, the hold lasts longer by at most
	// this time.
	storeHeldEvery = 10 * time.Minute
)

// Reasons of the events of the Node.
const (
	ReasonHeld     = "PodsHeld"
	ReasonReleased = "PodsReleased"
)

// A Sink receives pods from the API server. *desired.Desired implements it.
type Sink interface {
	Set(ctx context.Context, source string, pods []desired.SourcePod, problems []desired.Problem) error
	ReportFailure(source string, problems []desired.Problem)
	Update(ctx context.Context, source string, pods []desired.SourcePod, gone []desired.RemovedPod) error
}

// Meta stores small values. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMetaOrRetry(ctx context.Context, key, value string) error
}

// Config contains the dependencies and settings of a Brake.
type Config struct {
	Client *kube.Client
	Node   string               // name of this node
	Next   Sink                 // receives the sets and changes that the brake has judged
	Pods   func() []desired.Pod // all pods that the node knows
	Epoch  func() int           // (*history.History).Epoch
	Meta   Meta
	Limit  time.Duration                              // maximum duration of a hold; 0 means unlimited
	Now    func() time.Time                           // wall clock, only for times that users see; the default is time.Now
	Event  func(warning bool, reason, message string) // records an event of the Node; nil if no events are wanted
	// Left is set if the configuration of the node has no cluster any more. All pods are then on hold from the start. The Brake calls Left
	// when it has ended them.
	Left func()
	Log  *slog.Logger
}

// A Hold is the set of pods that the API server has lost and that keep running until a user decides.
type Hold struct {
	Since time.Time   `json:"since"` // by the wall clock, for users; the wall clock may be wrong
	Why   string      `json:"why"`
	Seen  *Identity   `json:"seen,omitempty"` // the control plane that lacks the pods; nil before the first judgement
	Pods  []types.UID `json:"pods"`           // sorted
	// Held is the duration of the hold when it was last stored, without the time in which the agent did not run.
	Held time.Duration `json:"held,omitempty"`
	// Before is the hold that counts again when the configuration has the cluster again. Only a hold with the reason whyLeft has it.
	Before *Hold `json:"before,omitempty"`
}

// state is the stored part of a Brake. It survives a restart of the agent.
type state struct {
	Known Identity `json:"known"`
	Hold  *Hold    `json:"hold,omitempty"`
}

// A Brake is a Sink that delays the end of pods which the control plane may have lost. It is safe for concurrent use.
type Brake struct {
	Config
	listAgain chan struct{} // capacity 1: requests a full list from the source
	wake      chan struct{} // capacity 1: signals Run that there is a hold

	judging sync.Mutex // serializes judgements; held during calls of Next

	mu       sync.Mutex
	state    state
	settleAt time.Time // due time of the judgement of a hold without Seen; zero if none is scheduled
	held     holdTimer
}

// New loads the stored state.
func New(ctx context.Context, c Config) (*Brake, error) {
	if c.Client == nil || c.Node == "" || c.Next == nil || c.Pods == nil || c.Epoch == nil || c.Meta == nil || c.Log == nil {
		return nil, errors.New("brake: a part of the configuration is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Event == nil {
		c.Event = func(bool, string, string) {}
	}
	b := &Brake{Config: c, listAgain: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	text, found, err := c.Meta.Meta(ctx, metaBrake)
	if err != nil {
		return nil, err
	}
	if found {
		if err := json.Unmarshal([]byte(text), &b.state); err != nil {
			c.Log.Error("the stored identity of the cluster cannot be decoded: the next list of pods is accepted unchecked", "error", err)
			b.state = state{}
		}
	}
	b.held.update(nil, b.state.Hold)
	switch h := b.state.Hold; {
	case c.Left != nil:
		b.holdAll(ctx)
	case h != nil && h.Why == whyLeft: // the configuration has a cluster again, whose list is judged as before
		if h.Before != nil {
			h.Before.Held = h.Held
		}
		b.setState(ctx, state{Known: b.state.Known, Hold: h.Before})
	case h != nil:
		c.Log.Warn("pods that the API server no longer has are on hold since before the agent started: they run until islet accept",
			"pods", len(h.Pods), "since", h.Since, "because", h.Why)
		notifyChannel(b.wake)
	}
	return b, nil
}

func notifyChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Registered stores the UID of the Node if the state does not contain one. The UID is missing before the first list of pods, and after an
// update from a version of islet without a brake.
func (b *Brake) Registered(ctx context.Context, uid types.UID) {
	if b.currentState().Known.Node != "" {
		return // without the wait for a judgement
	}
	b.judging.Lock()
	defer b.judging.Unlock()
	if now := b.currentState(); now.Known.Node == "" {
		now.Known.Node = uid
		b.setState(ctx, now)
	}
}

// RelistRequests returns a channel that receives a value when the source must list all pods again, because the judgement of the pods on
// hold may change.
func (b *Brake) RelistRequests() <-chan struct{} { return b.listAgain }

// CurrentHold returns the current hold. It returns false if no pod is on hold.
func (b *Brake) CurrentHold() (Hold, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Hold == nil {
		return Hold{}, false
	}
	h := *b.state.Hold
	h.Pods = slices.Clone(h.Pods)
	return h, true
}

// ReportFailure tells the next Sink why the API server cannot be reached.
func (b *Brake) ReportFailure(source string, problems []desired.Problem) {
	b.Next.ReportFailure(source, problems)
}

// Set judges a full list of pods and forwards the list. If Set puts missing pods on hold, it adds these pods to the forwarded list.
func (b *Brake) Set(ctx context.Context, source string, pods []desired.SourcePod, problems []desired.Problem) error {
	if source != desired.API {
		return b.Next.Set(ctx, source, pods, problems)
	}
	b.judging.Lock()
	defer b.judging.Unlock()
	now, err := b.readIdentity(ctx, true)
	if err != nil {
		return fmt.Errorf("check whether the cluster is the same as before: %w", err)
	}
	before := b.currentState()
	running, vanished := missingPods(b.Pods(), pods)
	scene := Scene{Known: before.Known, Now: now, Running: running, Vanished: len(vanished), Held: before.Hold != nil}
	if before.Hold != nil {
		scene.Seen = before.Hold.Seen
	}
	verdict, why := Judge(scene)
	if verdict == EndAll && mostVanished(len(vanished), running) {
		if err := b.checkVanished(ctx, vanished); err != nil {
			return err
		}
	}
	after := state{Known: before.Known}
	switch held := podsToHold(vanished, pods, verdict, before.Hold); {
	case len(held) > 0:
		after.Hold = &Hold{Since: b.Now(), Why: why, Seen: &now}
		if h := before.Hold; h != nil {
			after.Hold.Since, after.Hold.Held = h.Since, h.Held
		}
		for _, p := range held {
			after.Hold.Pods = append(after.Hold.Pods, p.Pod.UID)
			pods = append(pods, desired.SourcePod{Pod: p.Pod, Origin: p.Origin})
		}
		slices.Sort(after.Hold.Pods)
		b.setState(ctx, after) // store the hold before Next.Set, so that readers never see the pods without their hold
	default:
		after.Known = before.Known.merge(now)
	}
	if err := b.Next.Set(ctx, source, pods, problems); err != nil {
		return err
	}
	b.setState(ctx, after)
	b.reportChange(before.Hold, after.Hold, running)
	return nil
}

// Update judges changes and forwards them. A pod may have disappeared without a graceful deletion. Update ends such a pod if the Node is
// still the same. If the Node was replaced, garbage collection may have removed the pod, so the pod is on hold until Set judges all pods
// together.
func (b *Brake) Update(ctx context.Context, source string, pods []desired.SourcePod, gone []desired.RemovedPod) error {
	if source != desired.API {
		return b.Next.Update(ctx, source, pods, gone)
	}
	b.judging.Lock()
	defer b.judging.Unlock()
	forced := b.forcedRemovals(pods, gone)
	if len(forced) == 0 {
		return b.Next.Update(ctx, source, pods, gone)
	}
	now, err := b.readIdentity(ctx, false)
	if err != nil {
		return fmt.Errorf("check whether the Node is the same as before: %w", err)
	}
	before := b.currentState()
	why := before.Known.describeDifference(now)
	if h := before.Hold; why == "" || h != nil && h.Seen != nil && h.Seen.Node == now.Node && h.Seen.Epoch == now.Epoch {
		return b.Next.Update(ctx, source, pods, gone) // this control plane had the pod, so it may remove the pod
	}
	after := state{Known: before.Known, Hold: &Hold{Since: b.Now(), Why: why, Pods: slices.Clone(forced)}}
	if h := before.Hold; h != nil {
		after.Hold.Since, after.Hold.Held = h.Since, h.Held
		after.Hold.Pods = append(after.Hold.Pods, h.Pods...)
	}
	slices.Sort(after.Hold.Pods)
	after.Hold.Pods = slices.Compact(after.Hold.Pods)
	b.setState(ctx, after)
	b.mu.Lock()
	b.settleAt = time.Now().Add(settleFor)
	b.mu.Unlock()
	notifyChannel(b.wake)
	pods = slices.DeleteFunc(slices.Clone(pods), func(p desired.SourcePod) bool { return slices.Contains(forced, p.Pod.UID) })
	gone = slices.DeleteFunc(slices.Clone(gone), func(g desired.RemovedPod) bool { return slices.Contains(forced, g.UID) })
	return b.Next.Update(ctx, source, pods, gone)
}

// forcedRemovals returns the UIDs of running pods whose graceful deletion this node has not seen. Before a forced deletion, the server sets
// a grace period of 0.
func (b *Brake) forcedRemovals(pods []desired.SourcePod, gone []desired.RemovedPod) (uids []types.UID) {
	for _, p := range pods {
		if p.Ending != nil && p.Ending.Forced || failedByPodGC(p.Pod) {
			uids = append(uids, p.Pod.UID)
		}
	}
	for _, g := range gone {
		if g.Ending == nil || g.Ending.Forced {
			uids = append(uids, g.UID)
		}
	}
	if len(uids) == 0 {
		return nil
	}
	runs := map[types.UID]bool{}
	for _, p := range b.Pods() {
		runs[p.Pod.UID] = p.Source == desired.API && !p.Deleting
	}
	return slices.DeleteFunc(uids, func(uid types.UID) bool { return !runs[uid] })
}

// failedByPodGC reports whether the pod garbage collector has set the pod to Failed. The collector deletes the pod next.
func failedByPodGC(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Reason == "DeletionByPodGC"
	})
}

// Accept ends the pods on hold and returns their number. The caller is a user who confirms that the pods were deleted on purpose.
func (b *Brake) Accept(ctx context.Context) (int, error) {
	b.judging.Lock()
	defer b.judging.Unlock()
	before := b.currentState()
	h := before.Hold
	if h == nil {
		return 0, nil
	}
	var gone []desired.RemovedPod
	for _, uid := range h.Pods {
		gone = append(gone, desired.RemovedPod{UID: uid})
	}
	if err := b.Next.Update(ctx, desired.API, nil, gone); err != nil {
		return 0, fmt.Errorf("end the held pods: %w", err)
	}
	after := state{Known: before.Known}
	if h.Seen != nil {
		after.Known = after.Known.merge(*h.Seen)
	}
	b.setState(ctx, after)
	b.reportChange(h, nil, len(h.Pods))
	if b.Left != nil {
		b.Left()
	}
	notifyChannel(b.listAgain) // the control plane may have changed again
	return len(gone), nil
}

// whyLeft is the reason of the hold of a node whose configuration has no cluster any more. Such a node gets no list of pods, so the hold
// has no Seen.
const whyLeft = "the configuration has no cluster any more"

// holdAll puts all running pods of the API server on hold. The edit or loss of a file is no consent to their end.
func (b *Brake) holdAll(ctx context.Context) {
	running, all := missingPods(b.Pods(), nil)
	if running == 0 {
		return
	}
	h := &Hold{Since: b.Now(), Why: whyLeft}
	if old := b.state.Hold; old != nil {
		h.Since, h.Held, h.Before = old.Since, old.Held, old
		if old.Why == whyLeft {
			h.Before = old.Before
		}
	}
	for _, p := range all {
		h.Pods = append(h.Pods, p.Pod.UID)
	}
	slices.Sort(h.Pods)
	b.setState(ctx, state{Known: b.state.Known, Hold: h})
	b.reportChange(nil, h, running)
}

func (b *Brake) currentState() state {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// setState sets the state, and stores a changed state. A write error is only logged, and the pods on hold keep running.
func (b *Brake) setState(ctx context.Context, now state) {
	b.mu.Lock()
	before := b.state
	b.state = now
	b.held.update(before.Hold, now.Hold)
	if now.Hold == nil || now.Hold.Seen != nil {
		b.settleAt = time.Time{}
	}
	b.mu.Unlock()
	old, err := json.Marshal(before)
	data, err2 := json.Marshal(now)
	if err = errors.Join(err, err2); err == nil && string(old) != string(data) {
		err = b.Meta.SetMetaOrRetry(ctx, metaBrake, string(data))
	}
	if err != nil {
		b.Log.Error("the pods on hold cannot be stored yet: they are judged again after a restart of the agent", "error", err)
	}
	if now.Hold != nil {
		notifyChannel(b.wake)
	}
}
