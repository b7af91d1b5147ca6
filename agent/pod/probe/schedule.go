package probe

import (
	"math/rand/v2"
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// These are the first intervals between two calls to a container that is starting. They are short, because many
// programs listen soon after their start. The interval doubles with each call. For commands the first interval is
// longer, because each call starts a process.
const (
	firstGap     = 10 * time.Millisecond
	firstExecGap = 100 * time.Millisecond
)

// scheduleFirst sets the time of a check's first call. If the container started before the agent and the parameter
// known is true, the first call is delayed by a random time, so that a restarted agent does not make all calls at
// once. The parameter spread is the maximum of this delay. In all other cases the container has one period to
// start. During this period, startup and readiness probes are called almost at once and then at growing intervals,
// and only success counts. A kubelet makes the first call at a random time in the first period, so a pod cannot
// expect the first call at a certain time.
func (c *check) scheduleFirst(now, since time.Time, seen plan.Container, known bool, spread time.Duration) {
	age := now.Round(0).Sub(seen.StartedAt) // a wall-clock time; the clock may have been set in the meantime
	delay := durationOf(c.probeSpec().InitialDelaySeconds)
	from := now.Add(min(max(delay-age, 0), delay))
	c.gap = firstGap
	if c.probeSpec().Exec != nil {
		c.gap = firstExecGap
	}
	switch {
	case known && seen.StartedAt.Before(since.Round(0)):
		c.steady = alignCall(since, from.Add(rand.N(spread)))
		c.due = c.steady
	default:
		c.steady = alignCall(since, now.Add(max(c.period(), from.Sub(now))))
		c.due = c.steady
		if c.kind != liveness {
			c.due = c.earlyCall(from)
		}
	}
}

// callAlignment is the interval to which regular calls are aligned. Calls of several probes at the same time wake up the CPU
// less often.
const callAlignment = 100 * time.Millisecond

// alignCall returns the first aligned time that is not before t. Periods are whole seconds, so the following calls are
// also aligned.
func alignCall(since, t time.Time) time.Time {
	return since.Add((t.Sub(since) + callAlignment - 1).Truncate(callAlignment))
}

// earlyCall returns the time of the next call to a container that is still starting.
func (c *check) earlyCall(now time.Time) time.Time {
	at := now.Add(c.gap)
	c.gap *= 2
	if at.After(c.steady) {
		return c.steady
	}
	return at
}

// scheduleNext sets the time of the next call after a call has ended. If a call took longer than one period,
// the calls that were missed are skipped.
func (c *check) scheduleNext(f *probeCall, since, now time.Time) {
	if f.began.Before(c.steady) {
		if f.answer.verdict != passedVerdict || f.answer.err != nil {
			c.due = c.earlyCall(now)
			return
		}
		c.steady = f.began
		c.due = alignCall(since, f.began)
	}
	period := c.period()
	c.due = c.due.Add(period)
	if late := now.Sub(c.due); late > 0 {
		c.due = c.due.Add(late.Truncate(period) + period)
	}
}

// shouldCall reports whether a check of a running container must be called. The startup probe is called until it has
// passed, and the others after that. If the container is going to be stopped, or its probes have failed, only the
// readiness probe is called.
func (p *Probes) shouldCall(c *check, in plan.Input, ends bool) bool {
	p.mu.Lock()
	h := p.containerHealth(c.uid, c.ctr, c.id)
	p.mu.Unlock()
	f, busy := in.InFlight[c.container]
	stops := ends || h.Unhealthy || busy && (f.Op == plan.StopContainer || f.Op == plan.PreStop)
	switch c.kind {
	case startup:
		return !h.Started && !stops
	case liveness:
		return h.Started && !stops
	}
	return h.Started
}
