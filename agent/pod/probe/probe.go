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
	"github.com/islet-edge/islet/internal/podspec"
)

// Caller makes the calls. *call.Caller is one.
type Caller interface {
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error)
	Get(ctx context.Context, t call.Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (call.Response, error)
	Connect(ctx context.Context, t call.Target, a *v1.TCPSocketAction, timeout time.Duration) error
	Check(ctx context.Context, t call.Target, a *v1.GRPCAction, timeout time.Duration) error
}

// Events takes what is found out, in a kubelet's words. It must not block.
type Events interface {
	Pod(pod *v1.Pod, container, eventType, reason, message string)
}

// Config is what Probes needs. Its functions must not block.
type Config struct {
	Caller Caller
	Input  func(types.UID) plan.Input // of the last round of the pod's worker
	Node   func() []string            // addresses of the node, which are those of pods in its network
	Events Events
	// Hold has no container given up for what its probes say, and all asked within a second:
	// the agent is on trial, and may be what they fail for.
	Hold bool
	File string // in memory, of what a restart of the agent must not forget; empty: it does
	// Changed is called when Health may say something else of a pod.
	Changed func(types.UID)
	Log     *slog.Logger
}

// Probes is safe for concurrent use.
type Probes struct {
	cfg   Config
	dirty *dirty.Set[types.UID] // to follow
	ended chan *flight

	// These are of the goroutine of Run.
	since   time.Time
	queue   queue
	memory  memory
	flights sync.WaitGroup

	mu      sync.Mutex
	pods    map[types.UID]map[subject]*check // changed by the goroutine of Run only
	earlier map[string]finding               // by container ID; it counts until the container's checks have a verdict
}

// A finding is what an earlier run of the agent found out about a container.
type finding struct{ started, ready bool }

// New starts nothing.
func New(cfg Config) *Probes {
	return &Probes{
		cfg: cfg, dirty: dirty.New[types.UID](), ended: make(chan *flight), pods: map[types.UID]map[subject]*check{},
		earlier: map[string]finding{}, memory: memory{path: cfg.File, log: cfg.Log},
	}
}

// Recall takes over what an earlier run of the agent found out about the containers of a pod: it is in
// the last status that was stored. It is called before Run and before Health.
func (p *Probes) Recall(pod *v1.Pod, last *v1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ctr := range probes(pod) {
		for st := range podspec.Statuses(last) {
			if _, id, ok := strings.Cut(st.ContainerID, "://"); ok && st.Name == ctr.Name {
				p.earlier[id] = finding{started: st.Started != nil && *st.Started, ready: st.Ready}
			}
		}
	}
}

// Poke says that what is wanted of a pod, or there, may be another. It never blocks, and
// may be called before Run.
func (p *Probes) Poke(uid types.UID) { p.dirty.Add(uid) }

// Run asks until ctx ends, and for the end of what it asks then.
func (p *Probes) Run(ctx context.Context) error {
	defer p.flights.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.since = time.Now()
	p.memory.load()
	if p.cfg.Hold { // nor is it told to the agent that comes next
		p.memory.path = ""
	}
	timer := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.dirty.Wake():
			for _, uid := range p.dirty.Take() {
				p.follow(uid)
			}
		case f := <-p.ended:
			p.keep(f)
		case <-timer.C:
		}
		now := time.Now()
		for len(p.queue) > 0 && !p.queue[0].due.After(now) {
			p.launch(ctx, heap.Pop(&p.queue).(*check), now)
		}
		timer.Stop()
		if len(p.queue) > 0 {
			timer.Reset(p.queue[0].due.Sub(now))
		}
	}
}

// launch asks in a goroutine of its own.
func (p *Probes) launch(ctx context.Context, c *check, now time.Time) {
	f := &flight{check: c, began: now}
	ctx, f.cancel = context.WithCancel(ctx)
	c.flight = f
	q := question{c.kind, c.spec(), c.target, c.timeout()} // the check may change meanwhile
	p.flights.Go(func() {
		defer f.cancel()
		f.answer = p.ask(ctx, q)
		select {
		case p.ended <- f:
		case <-ctx.Done(): // nobody wants to know
		}
	})
}

// keep takes the answer of a call.
func (p *Probes) keep(f *flight) {
	c, now := f.check, time.Now()
	if c.flight != f { // it was not wanted any more as it came
		return
	}
	c.flight = nil
	early := f.began.Before(c.steady)
	if a := f.answer; a.err == nil || !early {
		p.tell(c, a, early)
	}
	c.next(f, p.since, now)
	heap.Push(&p.queue, c)
	if f.answer.err != nil { // it says nothing of the container
		return
	}
	p.mu.Lock()
	c.counts.add(f.answer.verdict, now.Sub(f.began))
	before := p.health(c.uid, c.ctr, c.id)
	if !early || f.answer.verdict == passed {
		c.verdict = c.count(f.answer.verdict)
	}
	after := p.health(c.uid, c.ctr, c.id)
	p.mu.Unlock()
	if c.streak == failed {
		p.memory.set(c.id, c.kind, c.streaks)
	} else {
		p.memory.set(c.id, c.kind, 0)
	}
	if before != after {
		p.follow(c.uid) // others may be asked now, and this one perhaps not
		p.cfg.Changed(c.uid)
	}
}

// follow makes the checks of a pod what they are to be now.
func (p *Probes) follow(uid types.UID) {
	in := p.cfg.Input(uid)
	over := in.Want == nil
	ends := over || in.Deleting || in.End != nil || plan.Finished(in) || plan.Expired(in)
	if ends && !over { // nothing of it starts any more
		over = true
		for _, c := range in.Seen.Containers {
			over = over && !c.Live()
		}
	}
	checks := p.pods[uid]
	left := make(map[subject]*check, len(checks))
	for s, c := range checks {
		left[s] = c
	}
	if !over {
		for k, ctr := range probes(in.Want) {
			s := subject{ctr.Name, k}
			c := checks[s]
			if c == nil {
				c = &check{uid: uid, subject: s, place: -1}
				checks = p.add(c)
			}
			delete(left, s)
			c.ctr = ctr
			p.mu.Lock()
			c.pod = in.Want
			p.mu.Unlock()
			p.aim(c, in, ends)
		}
	}
	for _, c := range left {
		p.rest(c)
		p.drop(c)
		p.memory.set(c.id, c.kind, 0)
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

func (p *Probes) drop(c *check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods[c.uid], c.subject)
	for _, other := range p.pods[c.uid] {
		if other.id == c.id {
			return
		}
	}
	delete(p.earlier, c.id)
	if len(p.pods[c.uid]) == 0 {
		delete(p.pods, c.uid)
	}
}

// rest stops asking. The answer of a call that goes on does not count.
func (p *Probes) rest(c *check) {
	if c.place >= 0 {
		heap.Remove(&p.queue, c.place)
	}
	if c.flight != nil {
		c.flight.cancel()
		c.flight = nil
	}
}

// aim directs a check at the container that runs now, and asks, or rests.
func (p *Probes) aim(c *check, in plan.Input, ends bool) {
	seen, ok := in.Seen.Last(c.container)
	if ok && seen.ID != c.id {
		p.rest(c)
		p.meet(c, seen.ID)
	}
	target, ok := p.target(in, c.ctr, seen)
	if !ok || !p.wanted(c, in, ends) {
		p.rest(c)
		return
	}
	c.target = target
	if c.place >= 0 || c.flight != nil {
		return
	}
	p.mu.Lock()
	ready := p.health(c.uid, c.ctr, c.id).Ready
	p.mu.Unlock()
	spread := c.period()
	if p.cfg.Hold {
		spread = time.Second
	}
	c.begin(time.Now(), p.since, seen, c.kind == liveness || c.kind == readiness && ready, spread)
	heap.Push(&p.queue, c)
}

// meet makes a check one of another container, of which an earlier run of the agent may
// have found out that it fails.
func (p *Probes) meet(c *check, id string) {
	p.memory.set(c.id, c.kind, 0)
	c.streak, c.streaks = failed, p.memory.get(id, c.kind)
	p.mu.Lock()
	delete(p.earlier, c.id)
	c.id, c.verdict = id, none
	if c.streaks > 0 && c.streaks >= c.threshold(failed) {
		c.verdict = failed
	}
	p.mu.Unlock()
	if c.verdict == failed {
		p.cfg.Changed(c.uid)
	}
}

// target is where to call a container; ok is false while it does not run in a sandbox
// that is ready, whose address may be another pod's, or while its postStart hook runs.
func (p *Probes) target(in plan.Input, ctr *v1.Container, seen plan.Container) (t call.Target, ok bool) {
	if f, busy := in.Busy[ctr.Name]; seen.State != plan.Running || seen.ID == "" || busy && f.Op == plan.StartContainer || plan.Hooking(in, seen) {
		return t, false
	}
	t = call.Target{ID: seen.ID, Container: ctr}
	for _, sb := range in.Seen.Sandboxes {
		if sb.ID != seen.SandboxID || !sb.Ready {
			continue
		}
		ips := sb.IPs
		if in.Want.Spec.HostNetwork {
			ips = p.cfg.Node()
		}
		if len(ips) > 0 {
			t.IP = ips[0]
		}
		return t, true
	}
	return t, false
}

// wanted reports whether a container that runs is to be asked: whether it has started
// until it has, and whether it lives and is ready from then on. One that is given up, or
// that is to end, is asked for its readiness only.
func (p *Probes) wanted(c *check, in plan.Input, ends bool) bool {
	p.mu.Lock()
	h := p.health(c.uid, c.ctr, c.id)
	p.mu.Unlock()
	f, busy := in.Busy[c.container]
	stops := ends || h.Unhealthy || busy && (f.Op == plan.StopContainer || f.Op == plan.PreStop)
	switch c.kind {
	case startup:
		return !h.Started && !stops
	case liveness:
		return h.Started && !stops
	}
	return h.Started
}

// Health is worker.Health: what is known of the containers of a pod that run and have
// probes, by container ID. One of which nothing is known has neither started nor is it
// ready.
func (p *Probes) Health(pod *v1.Pod, seen plan.Observed) map[string]plan.Health {
	if pod == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out map[string]plan.Health
	for _, ctr := range probes(pod) {
		c, ok := seen.Last(ctr.Name)
		if _, done := out[c.ID]; !ok || c.State != plan.Running || done {
			continue
		}
		if out == nil {
			out = map[string]plan.Health{}
		}
		out[c.ID] = p.health(pod.UID, ctr, c.ID)
	}
	return out
}

// health is what is known of one container. The caller holds mu.
func (p *Probes) health(uid types.UID, ctr *v1.Container, id string) plan.Health {
	of := func(k kind) verdict {
		if c := p.pods[uid][subject{ctr.Name, k}]; c != nil && c.id == id {
			return c.verdict
		}
		return none
	}
	started, ready := of(startup), of(readiness)
	h := plan.Health{Started: started == passed || ctr.StartupProbe == nil, Unhealthy: !p.cfg.Hold && (started == failed || of(liveness) == failed)}
	if ctr.StartupProbe != nil && started == none || ctr.ReadinessProbe != nil && ready == none {
		was := p.earlier[id]
		h.Started = h.Started || was.started && started == none
		h.Ready = was.ready && ready == none
	}
	h.Ready = h.Started && (h.Ready || ready == passed || ctr.ReadinessProbe == nil)
	return h
}

// Confirmed reports whether each container of a pod that is ready has answered this run of the agent
// as it should. What an earlier run found out stands until enough answers say otherwise, which
// may take longer than a trial. An agent that is not on trial (see Hold) has nothing to confirm.
func (p *Probes) Confirmed(pod *v1.Pod) bool {
	if !p.cfg.Hold {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, ctr := range probes(pod) {
		if k == startup { // it is over where a container is ready
			continue
		}
		c := p.pods[pod.UID][subject{ctr.Name, k}]
		switch {
		case c == nil || c.verdict == failed:
			return false
		case c.counts.passed == 0 && (k == readiness || c.counts.failed > 0): // liveness may have to wait for its first delay
			return false
		}
	}
	return true
}
