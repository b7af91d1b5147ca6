package probe

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/internal/podspec"
)

// A kind is what a check finds out.
type kind uint8

const (
	liveness kind = iota
	readiness
	startup
)

var kinds = [...]string{"Liveness", "Readiness", "Startup"}

func (k kind) String() string { return kinds[k] }

// of is the probe of that kind; nil: the container has none.
func (k kind) of(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}[k]
}

// A subject names a check of a pod.
type subject struct {
	container string
	kind      kind
}

// probes gives all probes of a pod. An init container that is to end by itself has none.
func probes(pod *v1.Pod) iter.Seq2[kind, *v1.Container] {
	return func(yield func(kind, *v1.Container) bool) {
		for when, ctr := range podspec.Containers(&pod.Spec) {
			for k := liveness; k <= startup && (when == podspec.Main || when == podspec.Sidecar); k++ {
				if k.of(ctr) != nil && !yield(k, ctr) {
					return
				}
			}
		}
	}
}

// A verdict is what a check found out of a container.
type verdict uint8

const (
	none verdict = iota // nothing yet
	passed
	failed
)

// A check is one probe of one container of a pod, as long as there is the pod.
type check struct {
	uid types.UID
	subject

	// These are of the goroutine of Run.
	ctr     *v1.Container
	target  call.Target
	due     time.Time     // of the next call
	place   int           // in the queue; -1: it is not in it
	steady  time.Time     // from when on the calls are a period apart, and failures count
	gap     time.Duration // between the calls before
	flight  *flight       // the call that goes on; nil: none
	streak  verdict       // of the last calls
	streaks int32         // how many in a row

	// Others read these: Probes.mu.
	pod     *v1.Pod
	id      string // of the container that verdict is on
	verdict verdict
	counts  counts
}

// A flight is a call that goes on.
type flight struct {
	check  *check
	began  time.Time
	cancel context.CancelFunc
	answer answer
}

func (c *check) spec() *v1.Probe { return c.kind.of(c.ctr) }

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (c *check) period() time.Duration { return seconds(max(1, c.spec().PeriodSeconds)) }

func (c *check) timeout() time.Duration { return seconds(max(1, c.spec().TimeoutSeconds)) }

// threshold is how many answers in a row make a verdict.
func (c *check) threshold(v verdict) int32 {
	if v == failed {
		return c.spec().FailureThreshold
	}
	return c.spec().SuccessThreshold
}

// The first wait of a container that is to become ready, in which quick programs begin to
// listen; each of the next is twice as long. A command costs a process.
const (
	firstGap     = 10 * time.Millisecond
	firstExecGap = 100 * time.Millisecond
)

// begin sets the time of the first call of a check that may be made from now on.
// A container that runs for longer than the agent does, and of which something is known,
// is asked some time within spread, so that not all are asked at once. Else the first
// period is for its start: it is asked whether it has started, or is ready, almost
// at once and then at growing intervals, and only success counts. As with a kubelet the first period
// begins at any time before, a pod may not rely on less.
func (c *check) begin(now, since time.Time, seen plan.Container, known bool, spread time.Duration) {
	age := now.Round(0).Sub(seen.StartedAt) // by the machine's clock, which may have been set
	delay := seconds(c.spec().InitialDelaySeconds)
	from := now.Add(min(max(delay-age, 0), delay))
	c.gap = firstGap
	if c.spec().Exec != nil {
		c.gap = firstExecGap
	}
	switch {
	case known && seen.StartedAt.Before(since.Round(0)):
		c.steady = together(since, from.Add(rand.N(spread)))
		c.due = c.steady
	default:
		c.steady = together(since, now.Add(max(c.period(), from.Sub(now))))
		if c.due = c.steady; c.kind != liveness {
			c.due = c.soon(from)
		}
	}
}

// beat is the distance of the instants at which steady calls are made: some at each, so
// that the processor wakes up for several.
const beat = 100 * time.Millisecond

// together is the next such instant. Periods are whole seconds, so who is on the beat
// stays so.
func together(since, t time.Time) time.Time {
	return since.Add((t.Sub(since) + beat - 1).Truncate(beat))
}

// soon is when to ask again before the check is steady.
func (c *check) soon(now time.Time) time.Time {
	at := now.Add(c.gap)
	c.gap *= 2
	if at.After(c.steady) {
		return c.steady
	}
	return at
}

// next sets the time of the call after one that has ended. Calls that were missed, since
// one took longer than a period, are not made up for.
func (c *check) next(f *flight, since, now time.Time) {
	if f.began.Before(c.steady) {
		if f.answer.verdict != passed || f.answer.err != nil {
			c.due = c.soon(now)
			return
		}
		c.steady = f.began
		c.due = together(since, f.began)
	}
	period := c.period()
	c.due = c.due.Add(period)
	if late := now.Sub(c.due); late > 0 {
		c.due = c.due.Add(late.Truncate(period) + period)
	}
}

// count takes an answer, and returns the verdict that follows from it and those before.
func (c *check) count(v verdict) verdict {
	if c.streak != v {
		c.streak, c.streaks = v, 0
	}
	if c.streaks++; c.streaks < c.threshold(v) {
		return c.verdict
	}
	return v
}

// A queue is a heap of checks by the time of their next call.
type queue []*check

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	c := x.(*check)
	c.place = len(*q)
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q, c.place = (*q)[:last], -1
	return c
}
