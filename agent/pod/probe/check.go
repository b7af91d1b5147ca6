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

// A kind is the kind of a probe.
type kind uint8

const (
	liveness kind = iota
	readiness
	startup
)

var kinds = [...]string{"Liveness", "Readiness", "Startup"}

func (k kind) String() string { return kinds[k] }

// probe returns the probe of that kind; nil: the container has none.
func (k kind) probe(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}[k]
}

// A subject names a check of a pod.
type subject struct {
	container string
	kind      kind
}

// probes iterates over all probes of a pod. Init containers that are not sidecars have none.
func probes(pod *v1.Pod) iter.Seq2[kind, *v1.Container] {
	return func(yield func(kind, *v1.Container) bool) {
		for when, ctr := range podspec.Containers(&pod.Spec) {
			for k := liveness; k <= startup && (when == podspec.Main || when == podspec.Sidecar); k++ {
				if k.probe(ctr) != nil && !yield(k, ctr) {
					return
				}
			}
		}
	}
}

// A verdict is the result of a check.
type verdict uint8

const (
	none verdict = iota // nothing yet
	passed
	failed
)

// A check is one probe of one container of a pod. It exists as long as the pod.
type check struct {
	uid types.UID
	subject

	// Only the goroutine of Run uses these.
	ctr     *v1.Container
	target  call.Target
	due     time.Time     // of the next call
	place   int           // in the queue; -1: it is not in it
	steady  time.Time     // from then on calls are a period apart, and failures count
	gap     time.Duration // between the calls until then
	flight  *flight       // the call that goes on; nil: none
	streak  verdict       // of the last calls
	streaks int32         // how many in a row

	// Probes.mu guards these.
	pod     *v1.Pod
	id      string // of the container that verdict is about
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

func (c *check) spec() *v1.Probe { return c.kind.probe(c.ctr) }

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (c *check) period() time.Duration { return seconds(max(1, c.spec().PeriodSeconds)) }

func (c *check) timeout() time.Duration { return seconds(max(1, c.spec().TimeoutSeconds)) }

// threshold returns how many equal answers in a row make a verdict.
func (c *check) threshold(v verdict) int32 {
	if v == failed {
		return c.spec().FailureThreshold
	}
	return c.spec().SuccessThreshold
}

// The first wait for a container to become ready, long enough for quick programs to listen. Each of the next is twice as
// long. For commands, which cost a process each, it is longer.
const (
	firstGap     = 10 * time.Millisecond
	firstExecGap = 100 * time.Millisecond
)

// begin sets the time of a check's first call. A container that started before the agent, and whose result is known, is
// called at a random time within spread, so that not all are called at once. Otherwise the first period is for its start:
// startup and readiness probes are called almost at once and then at growing intervals, and only success counts. With a
// kubelet the first call comes at any time in the first period, so no pod may rely on a later one.
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
		c.steady = nextBeat(since, from.Add(rand.N(spread)))
		c.due = c.steady
	default:
		c.steady = nextBeat(since, now.Add(max(c.period(), from.Sub(now))))
		c.due = c.steady
		if c.kind != liveness {
			c.due = c.soon(from)
		}
	}
}

// beat is the interval at which steady calls are made: several at once, so that the processor wakes up less often.
const beat = 100 * time.Millisecond

// nextBeat returns the first beat at or after t. Periods are whole seconds, so later calls are on a beat, too.
func nextBeat(since, t time.Time) time.Time {
	return since.Add((t.Sub(since) + beat - 1).Truncate(beat))
}

// soon returns the time of the next call while the check is not steady.
func (c *check) soon(now time.Time) time.Time {
	at := now.Add(c.gap)
	c.gap *= 2
	if at.After(c.steady) {
		return c.steady
	}
	return at
}

// next sets the time of the call after one that has ended. Calls that were missed because one took longer than a period are
// not repeated.
func (c *check) next(f *flight, since, now time.Time) {
	if f.began.Before(c.steady) {
		if f.answer.verdict != passed || f.answer.err != nil {
			c.due = c.soon(now)
			return
		}
		c.steady = f.began
		c.due = nextBeat(since, f.began)
	}
	period := c.period()
	c.due = c.due.Add(period)
	if late := now.Sub(c.due); late > 0 {
		c.due = c.due.Add(late.Truncate(period) + period)
	}
}

// count counts an answer, and returns the verdict that follows.
func (c *check) count(v verdict) verdict {
	if c.streak != v {
		c.streak, c.streaks = v, 0
	}
	c.streaks++
	if c.streaks < c.threshold(v) {
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
