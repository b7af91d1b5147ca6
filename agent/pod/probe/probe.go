package probe

import (
	"container/heap"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/internal/dirty"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/podspec"
)

// Caller makes the calls of probes. *call.Caller implements it.
type Caller interface {
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error)
	Get(ctx context.Context, t call.Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (call.Response, error)
	Connect(ctx context.Context, t call.Target, a *v1.TCPSocketAction, timeout time.Duration) error
	Check(ctx context.Context, t call.Target, a *v1.GRPCAction, timeout time.Duration) error
}

// Config configures Probes. Its functions must not block.
type Config struct {
	Caller Caller
	Input  func(types.UID) plan.Input // returns the Input of the last round of the pod's worker
	Node   func() []string            // the addresses that the node has now, which pods with hostNetwork use
	Events event.Sink
	// Hold is set for an agent on trial, which may itself cause probes to fail. Containers are then not
	// stopped because of their probes, and the first call of each probe is made within a second.
	Hold bool
	File string // file on tmpfs for the numbers of consecutive failures; if empty, the numbers are lost when the agent restarts
	// Changed is called when the Health of a pod may have changed.
	Changed func(types.UID)
	Log     *slog.Logger
}

// Probes runs the probes of all pods. It is safe for concurrent use.
type Probes struct {
	cfg        Config
	dirty      *dirty.Set[types.UID] // pods whose checks must be updated
	endedCalls chan *probeCall

	// Only Run's goroutine uses the following fields.
	startTime time.Time
	queue     queue
	failures  failureFile
	flights   sync.WaitGroup

	mu             sync.Mutex
	pods           map[types.UID]map[subject]*check // only Run's goroutine changes it
	earlierResults map[string]finding               // results of an earlier agent, by container ID; used until there are verdicts
}

// A finding is a container's last state, as an earlier agent has stored it.
type finding struct{ started, ready bool }

// New returns Probes. It starts no goroutine.
func New(cfg Config) *Probes {
	return &Probes{
		cfg: cfg, dirty: dirty.New[types.UID](), endedCalls: make(chan *probeCall), pods: map[types.UID]map[subject]*check{},
		earlierResults: map[string]finding{}, failures: failureFile{path: cfg.File, log: cfg.Log},
	}
}

// Restore restores probe results of an earlier agent from a pod's last stored status. It must be called before Run and
// before Health.
func (p *Probes) Restore(pod *v1.Pod, last *v1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ctr := range allProbes(pod) {
		for st := range podspec.Statuses(last) {
			if _, id, ok := strings.Cut(st.ContainerID, "://"); ok && st.Name == ctr.Name {
				p.earlierResults[id] = finding{started: st.Started != nil && *st.Started, ready: st.Ready}
			}
		}
	}
}

// Poke schedules an update of a pod's checks, because the wanted pod or its containers may have changed. It never
// blocks, and it may be called before Run.
func (p *Probes) Poke(uid types.UID) { p.dirty.Add(uid) }

// Run calls probes until ctx ends. It returns after the last running call has ended.
func (p *Probes) Run(ctx context.Context) error {
	defer p.flights.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.startTime = time.Now()
	p.failures.load()
	// An agent on trial does not store failures, so the next agent does not count them.
	if p.cfg.Hold {
		p.failures.path = ""
	}
	timer := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.dirty.Wake():
			for _, uid := range p.dirty.TakeAll() {
				p.updateChecks(uid)
			}
		case f := <-p.endedCalls:
			p.handleAnswer(f)
		case <-timer.C:
		}
		now := time.Now()
		for len(p.queue) > 0 && !p.queue[0].due.After(now) {
			p.startCall(ctx, heap.Pop(&p.queue).(*check), now)
		}
		timer.Stop()
		if len(p.queue) > 0 {
			timer.Reset(p.queue[0].due.Sub(now))
		}
	}
}

// startCall calls a probe in a new goroutine.
func (p *Probes) startCall(ctx context.Context, c *check, now time.Time) {
	f := &probeCall{check: c, began: now}
	ctx, f.cancel = context.WithCancel(ctx)
	c.running = f
	// q is a copy, because the check may change during the call.
	q := question{c.kind, c.probeSpec(), c.target, c.timeout()}
	if c.pod.Spec.HostNetwork {
		q.target.IP = p.hostAddress()
	}
	p.flights.Go(func() {
		defer f.cancel()
		f.answer = p.callProbe(ctx, q)
		select {
		case p.endedCalls <- f:
		case <-ctx.Done(): // no longer needed
		}
	})
}

// handleAnswer processes the answer to a call.
func (p *Probes) handleAnswer(f *probeCall) {
	c, now := f.check, time.Now()
	if c.running != f { // the call was cancelled
		return
	}
	c.running = nil
	early := f.began.Before(c.steady)
	if a := f.answer; a.err == nil || !early {
		p.recordEvent(c, a, early)
	}
	c.scheduleNext(f, p.startTime, now)
	heap.Push(&p.queue, c)
	if f.answer.err != nil { // an error says nothing about the state of the container
		return
	}
	p.mu.Lock()
	c.counts.add(f.answer.verdict, now.Sub(f.began))
	before := p.containerHealth(c.uid, c.ctr, c.id)
	if !early || f.answer.verdict == passedVerdict {
		c.verdict = c.countResult(f.answer.verdict)
	}
	after := p.containerHealth(c.uid, c.ctr, c.id)
	p.mu.Unlock()
	if c.lastResult == failedVerdict {
		p.failures.set(c.id, c.kind, c.inRow)
	} else {
		p.failures.set(c.id, c.kind, 0)
	}
	if before != after {
		p.updateChecks(c.uid) // which probes run depends on the result of the startup probe
		p.cfg.Changed(c.uid)
	}
}

// updateChecks adds, removes and updates the checks of a pod.
func (p *Probes) updateChecks(uid types.UID) {
	in := p.cfg.Input(uid)
	over := in.Want == nil
	ends := over || in.Deleting || in.End != nil || plan.IsFinished(in) || plan.DeadlineExpired(in)
	if ends && !over { // no container of the pod will be started any more
		over = true
		for _, c := range in.Observed.Containers {
			over = over && !c.MayRun()
		}
	}
	checks := p.pods[uid]
	left := make(map[subject]*check, len(checks))
	for s, c := range checks {
		left[s] = c
	}
	if !over {
		for k, ctr := range allProbes(in.Want) {
			s := subject{ctr.Name, k}
			c := checks[s]
			if c == nil {
				c = &check{uid: uid, subject: s, index: -1}
				checks = p.add(c)
			}
			delete(left, s)
			c.ctr = ctr
			p.mu.Lock()
			c.pod = in.Want
			p.mu.Unlock()
			p.updateTarget(c, in, ends)
		}
	}
	for _, c := range left {
		p.pauseCheck(c)
		p.removeCheck(c)
		p.failures.set(c.id, c.kind, 0)
	}
}

func (p *Probes) add(c *check) map[subject]*check {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[c.uid] == nil {
		p.pods[c.uid] = map[subject]*check{}
	}
	p.pods[c.uid][c.subject] = c
	return p.pods[c.uid]
}

func (p *Probes) removeCheck(c *check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods[c.uid], c.subject)
	for _, other := range p.pods[c.uid] {
		if other.id == c.id {
			return
		}
	}
	delete(p.earlierResults, c.id)
	if len(p.pods[c.uid]) == 0 {
		delete(p.pods, c.uid)
	}
}

// pauseCheck stops the calls of a check. If a call is running, its answer is ignored.
func (p *Probes) pauseCheck(c *check) {
	if c.index >= 0 {
		heap.Remove(&p.queue, c.index)
	}
	if c.running != nil {
		c.running.cancel()
		c.running = nil
	}
}

// updateTarget sets the target of a check to the container that is running now. It schedules the next call or pauses
// the check.
func (p *Probes) updateTarget(c *check, in plan.Input, ends bool) {
	seen, ok := in.Observed.Newest(c.container)
	if ok && seen.ID != c.id {
		p.pauseCheck(c)
		p.resetCheck(c, seen.ID)
	}
	target, ok := p.findTarget(in, c.ctr, seen)
	if !ok || !p.shouldCall(c, in, ends) {
		p.pauseCheck(c)
		return
	}
	c.target = target
	if c.index >= 0 || c.running != nil {
		return
	}
	p.mu.Lock()
	ready := p.containerHealth(c.uid, c.ctr, c.id).Ready
	p.mu.Unlock()
	spread := c.period()
	if p.cfg.Hold {
		spread = time.Second
	}
	c.scheduleFirst(time.Now(), p.startTime, seen, c.kind == liveness || c.kind == readiness && ready, spread)
	heap.Push(&p.queue, c)
}

// resetCheck resets a check, so that it can be used for another container. If the container's probe has already
// failed while an earlier agent was running, these failures are counted.
func (p *Probes) resetCheck(c *check, id string) {
	p.failures.set(c.id, c.kind, 0)
	c.lastResult, c.inRow = failedVerdict, p.failures.get(id, c.kind)
	p.mu.Lock()
	delete(p.earlierResults, c.id)
	c.id, c.verdict = id, noVerdict
	if c.inRow > 0 && c.inRow >= c.threshold(failedVerdict) {
		c.verdict = failedVerdict
	}
	p.mu.Unlock()
	if c.verdict == failedVerdict {
		p.cfg.Changed(c.uid)
	}
}

// findTarget returns the target for calls to a container. It returns false if the container is not running,
// if its postStart hook is running, or if its sandbox is not ready. If the sandbox is not ready, another pod
// may have its address.
func (p *Probes) findTarget(in plan.Input, ctr *v1.Container, seen plan.Container) (t call.Target, ok bool) {
	f, busy := in.InFlight[ctr.Name]
	starts := busy && f.Op == plan.StartContainer
	if seen.State != plan.Running || seen.ID == "" || starts || plan.PostStartRunning(in, seen) {
		return t, false
	}
	t = call.Target{ID: seen.ID, Container: ctr}
	for _, sb := range in.Observed.Sandboxes {
		if sb.ID != seen.SandboxID || !sb.Ready {
			continue
		}
		if len(sb.IPs) > 0 {
			t.IP = sb.IPs[0]
		}
		return t, true
	}
	return t, false
}

// hostAddress returns the address of pods with hostNetwork. The node's address may change at any time without a round of the pod's
// worker, so each call of a probe asks for it. While the machine has no address, the probes connect to its loopback address, as a
// kubelet does: a machine without a network must not stop its pods.
func (p *Probes) hostAddress() string {
	if ips := p.cfg.Node(); len(ips) > 0 {
		return ips[0]
	}
	return "127.0.0.1"
}
