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

// Caller makes the calls of probes. *call.Caller is one.
type Caller interface {
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error)
	Get(ctx context.Context, t call.Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (call.Response, error)
	Connect(ctx context.Context, t call.Target, a *v1.TCPSocketAction, timeout time.Duration) error
	Check(ctx context.Context, t call.Target, a *v1.GRPCAction, timeout time.Duration) error
}

// Config is what Probes needs. Its functions must not block.
type Config struct {
	Caller Caller
	Input  func(types.UID) plan.Input // of the last round of the pod's worker
	Node   func() []string            // addresses of the node, which are those of pods in its network
	Events event.Sink
	// Hold has no container stopped because of its probes, and each probe called within a second: the agent is on trial,
	// and may be the cause of their failure.
	Hold bool
	File string // in memory, with how often probes failed in a row; empty: a restart of the agent forgets that
	// Changed is called when the Health of a pod may have changed.
	Changed func(types.UID)
	Log     *slog.Logger
}

// Probes is safe for concurrent use.
type Probes struct {
	cfg   Config
	dirty *dirty.Set[types.UID] // the pods to call follow for
	ended chan *flight

	// Only the goroutine of Run uses these.
	since   time.Time
	queue   queue
	memory  memory
	flights sync.WaitGroup

	mu      sync.Mutex
	pods    map[types.UID]map[subject]*check // changed by the goroutine of Run only
	earlier map[string]finding               // by container ID; used until the checks of the container have a verdict
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

// Poke has the checks of a pod updated, because the wanted pod or its containers may have changed. It never blocks, and may
// be called before Run.
func (p *Probes) Poke(uid types.UID) { p.dirty.Add(uid) }

// Run calls probes until ctx ends. It returns when the last call has ended.
func (p *Probes) Run(ctx context.Context) error {
	defer p.flights.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.since = time.Now()
	p.memory.load()
	if p.cfg.Hold { // the next agent does not count these failures either
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

// launch calls a probe in a goroutine of its own.
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
		case <-ctx.Done(): // the answer is not needed any more
		}
	})
}

// keep processes the answer of a call.
func (p *Probes) keep(f *flight) {
	c, now := f.check, time.Now()
	if c.flight != f { // the call was cancelled
		return
	}
	c.flight = nil
	early := f.began.Before(c.steady)
	if a := f.answer; a.err == nil || !early {
		p.record(c, a, early)
	}
	c.next(f, p.since, now)
	heap.Push(&p.queue, c)
	if f.answer.err != nil { // no answer about the container
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
		p.follow(c.uid) // other probes may run now, and this one perhaps not
		p.cfg.Changed(c.uid)
	}
}

// follow adds, removes and updates the checks of a pod.
func (p *Probes) follow(uid types.UID) {
	in := p.cfg.Input(uid)
	over := in.Want == nil
	ends := over || in.Deleting || in.End != nil || plan.Finished(in) || plan.Expired(in)
	if ends && !over { // no container of it starts any more
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
		p.pause(c)
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

// pause stops the calls of a check. The answer of a call in flight does not count.
func (p *Probes) pause(c *check) {
	if c.place >= 0 {
		heap.Remove(&p.queue, c.place)
	}
	if c.flight != nil {
		c.flight.cancel()
		c.flight = nil
	}
}

// aim directs a check at the container that runs now, and schedules its next call, or pauses it.
func (p *Probes) aim(c *check, in plan.Input, ends bool) {
	seen, ok := in.Seen.Last(c.container)
	if ok && seen.ID != c.id {
		p.pause(c)
		p.retarget(c, seen.ID)
	}
	target, ok := p.target(in, c.ctr, seen)
	if !ok || !p.wanted(c, in, ends) {
		p.pause(c)
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

// retarget begins the check of another container. It may have failed in an earlier run of the agent already.
func (p *Probes) retarget(c *check, id string) {
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

// target returns where to call a container. ok is false while the container does not run, while its sandbox is not ready, as
// the address may be another pod's, and while its postStart hook runs.
func (p *Probes) target(in plan.Input, ctr *v1.Container, seen plan.Container) (t call.Target, ok bool) {
	f, busy := in.Busy[ctr.Name]
	starts := busy && f.Op == plan.StartContainer
	if seen.State != plan.Running || seen.ID == "" || starts || plan.Hooking(in, seen) {
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

// wanted reports whether a check of a running container is called: the startup probe until it has passed, the others from
// then on. Of a container that is to stop, or whose probes have failed, only the readiness probe is called.
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

// Health is worker.Health: the results of the running containers of a pod that have probes, by container ID. A container
// without results yet has neither started nor is it ready.
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

// health returns the results of one container. The caller holds mu.
func (p *Probes) health(uid types.UID, ctr *v1.Container, id string) plan.Health {
	result := func(k kind) verdict {
		if c := p.pods[uid][subject{ctr.Name, k}]; c != nil && c.id == id {
			return c.verdict
		}
		return none
	}
	started, ready := result(startup), result(readiness)
	h := plan.Health{
		Started:   started == passed || ctr.StartupProbe == nil,
		Unhealthy: !p.cfg.Hold && (started == failed || result(liveness) == failed),
	}
	if ctr.StartupProbe != nil && started == none || ctr.ReadinessProbe != nil && ready == none {
		was := p.earlier[id]
		h.Started = h.Started || was.started && started == none
		h.Ready = was.ready && ready == none
	}
	h.Ready = h.Started && (h.Ready || ready == passed || ctr.ReadinessProbe == nil)
	return h
}

// Confirmed reports whether the probes of a pod that is ready have succeeded in this run of the agent. Results of an earlier
// run count until enough answers change them, which may take longer than a trial. If the agent is not on trial (see Hold),
// Confirmed returns true.
func (p *Probes) Confirmed(pod *v1.Pod) bool {
	if !p.cfg.Hold {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, ctr := range probes(pod) {
		if k == startup { // a ready container has started
			continue
		}
		c := p.pods[pod.UID][subject{ctr.Name, k}]
		switch {
		case c == nil || c.verdict == failed:
			return false
		case c.counts.passed == 0 && (k == readiness || c.counts.failed > 0): // liveness may still wait for its initial delay
			return false
		}
	}
	return true
}
