package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/admit"
	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/agent/status"
	"github.com/islet-edge/islet/agent/worker"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
)

// pods joins what is wanted of the pods, what the node decided about them and
// what they are. To the workers it is the Desired, to the server the Pods.
type pods struct {
	a    *agent
	log  *slog.Logger
	wake chan struct{} // capacity 1: some status is dirty

	mu       sync.Mutex
	verdicts map[types.UID]*plan.End // of pods that were looked at; nil: admitted
	states   map[types.UID]state
	dirty    map[types.UID]struct{}
	news     chan struct{} // closed at the next change
}

// A state is what is shown of a pod.
type state struct {
	status   v1.PodStatus
	stopping time.Time // when its end was first asked for; zero: it was not
}

func newPods(a *agent) *pods {
	return &pods{
		a: a, log: a.log, wake: make(chan struct{}, 1), news: make(chan struct{}),
		verdicts: map[types.UID]*plan.End{}, states: map[types.UID]state{}, dirty: map[types.UID]struct{}{},
	}
}

// load takes over from the last run which pods were refused, and their last
// status. What runs was admitted.
func (p *pods) load(ctx context.Context) error {
	rejected, err := p.a.store.Rejected(ctx)
	if err != nil {
		return err
	}
	statuses, err := p.a.store.Statuses(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range p.a.observer.UIDs() {
		p.verdicts[uid] = nil
	}
	for uid, r := range rejected {
		p.verdicts[uid] = &plan.End{Reason: r.Reason, Message: r.Message}
	}
	for uid, s := range statuses {
		p.states[uid] = state{status: *s}
		p.send(uid, s)
	}
	return nil
}

// Get is what is wanted of a pod. The first call for a pod decides whether it
// may run here.
func (p *pods) Get(uid types.UID) (worker.Wanted, bool) {
	d, ok := p.a.desired.Get(uid)
	if !ok {
		return worker.Wanted{}, false
	}
	return worker.Wanted{Pod: d.Pod, Deleting: d.Deleting, Grace: d.Grace, Waiting: d.Waiting, End: p.verdict(d)}, true
}

// Spoken reports whether a source has said what it wants.
func (p *pods) Spoken(source string) bool {
	if source != "" {
		return p.a.spoken(source)
	}
	// Of a pod that does not say where it comes from any source may be the origin.
	return p.a.othersSpoken() && p.a.spoken(desired.API)
}

// Forget drops a pod of which nothing is left, once its control plane knows.
func (p *pods) Forget(ctx context.Context, uid types.UID) error {
	if c := p.a.cluster; c != nil {
		if d, ok := p.a.desired.Get(uid); ok {
			p.refresh(uid) // Run may not have come to its last status yet
			return c.outbox.Finish(ctx, d.Pod)
		}
	}
	return p.forget(ctx, uid)
}

// wanted reports whether the node knows a pod, as one to run or to end.
func (p *pods) wanted(uid types.UID) bool {
	_, ok := p.a.desired.Get(uid)
	return ok
}

func (p *pods) forget(ctx context.Context, uid types.UID) error {
	if err := p.a.desired.Forget(ctx, uid); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.verdicts, uid)
	delete(p.states, uid)
	p.tell() // its end is the last thing that watchers learn of it
	return nil
}

func (p *pods) verdict(d desired.Pod) *plan.End {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end := p.ended(d); end != nil {
		return end
	}
	end, known := p.verdicts[d.Pod.UID]
	if known || d.Deleting || d.Waiting != "" {
		return end
	}
	if r := admit.Admit(d.Pod, p.admitted(d.Pod.UID), p.admitNode()); r != nil {
		end = &plan.End{Reason: r.Reason, Message: "Pod was rejected: " + r.Message}
		p.a.events.Pod(d.Pod, "", v1.EventTypeWarning, r.Reason, r.Message)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.a.store.Reject(ctx, d.Pod.UID, store.Admission{Reason: end.Reason, Message: end.Message}); err != nil {
			p.log.Warn("a refusal could not be stored; it holds until the agent ends", "pod", d.Pod.Name, "uid", d.Pod.UID, "error", err)
		}
		p.log.Warn("pod refused", "pod", d.Pod.Name, "uid", d.Pod.UID, "reason", r.Reason, "message", r.Message)
	}
	p.verdicts[d.Pod.UID] = end
	return end
}

func (p *pods) admitNode() admit.Node {
	n := p.a.node.now()
	return admit.Node{Name: n.Name, OS: runtime.GOOS, Arch: runtime.GOARCH, Labels: p.a.node.label(), Allocatable: n.Allocatable, Sysctls: p.a.cfg.Kubelet.AllowedUnsafeSysctls}
}

// admitted lists the other pods that hold what a pod may want: those that may
// run, or have not ended yet. The caller holds mu.
func (p *pods) admitted(except types.UID) (out []*v1.Pod) {
	for _, d := range p.a.desired.List() {
		end, known := p.verdicts[d.Pod.UID]
		phase := p.states[d.Pod.UID].status.Phase
		if d.Pod.UID != except && known && end == nil && phase != v1.PodSucceeded && phase != v1.PodFailed {
			out = append(out, d.Pod)
		}
	}
	return out
}

// changed says that the status of a pod may have changed. It never blocks.
func (p *pods) changed(uid types.UID) {
	p.mu.Lock()
	p.dirty[uid] = struct{}{}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run makes the statuses of pods that changed until ctx ends.
func (p *pods) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		p.mu.Lock()
		dirty := slices.Collect(maps.Keys(p.dirty))
		clear(p.dirty)
		p.mu.Unlock()
		for _, uid := range dirty {
			p.refresh(uid)
		}
	}
}

func (p *pods) refresh(uid types.UID) {
	in := p.a.workers.Input(uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.states[uid]
	if in.Want == nil {
		if known {
			delete(p.states, uid)
			p.tell()
		}
		return
	}
	if !known && in.End != nil {
		before.status = in.Want.Status // it ended before this node knew of it
	}
	now := state{status: status.Make(in, before.status, p.a.node.statusHost())}
	if in.Deleting {
		now.stopping = in.Stopping
	}
	if known && now.stopping.Equal(before.stopping) && equality.Semantic.DeepEqual(before.status, now.status) {
		return
	}
	p.a.figures.running(in, &before.status, &now.status)
	p.states[uid] = now
	p.send(uid, &now.status)
	if err := p.a.store.PutStatus(uid, &now.status); err != nil {
		p.log.Warn("status not stored", "pod", in.Want.Name, "uid", uid, "error", err)
	}
	p.tell()
}

// send lets the control plane know the status of a pod.
func (p *pods) send(uid types.UID, s *v1.PodStatus) {
	if p.a.cluster == nil {
		return
	}
	if d, ok := p.a.desired.Get(uid); ok && d.Waiting == "" {
		p.a.cluster.outbox.Put(d.Pod, s)
	}
}

// tell wakes those who watch the pods. The caller holds mu.
func (p *pods) tell() {
	close(p.news)
	p.news = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (p *pods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.news
}

// List returns every pod with its newest status.
func (p *pods) List() []*v1.Pod {
	wanted := p.a.desired.List()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*v1.Pod, 0, len(wanted))
	for _, d := range wanted {
		pod := *d.Pod
		s := p.states[pod.UID]
		pod.Status = s.status
		pod.Status.Phase = cmp.Or(pod.Status.Phase, v1.PodPending)
		if d.Deleting {
			seconds := int64(d.Grace / time.Second)
			pod.DeletionTimestamp = &metav1.Time{Time: s.stopping}
			pod.DeletionGracePeriodSeconds = &seconds
		}
		out = append(out, &pod)
	}
	return out
}
