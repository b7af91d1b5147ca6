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

// probe returns the container's probe of this kind, or nil if it has none.
func (k kind) probe(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}[k]
}

// A subject identifies a check within its pod.
type subject struct {
	container string
	kind      kind
}

// probes iterates over all probes of a pod, with the containers to which they belong. Only main containers and
// sidecars have probes.
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

// A verdict is the result of a check, with the thresholds of its probe taken into account.
type verdict uint8

const (
	none verdict = iota // nothing yet
	passed
	failed
)

// A check runs one probe of one container of a pod. It exists as long as its pod exists.
type check struct {
	uid types.UID
	subject

	// Only Run's goroutine uses the following fields.
	ctr        *v1.Container
	target     call.Target
	due        time.Time     // time of the next call
	index      int           // index in the queue, or -1
	steady     time.Time     // before this time, the interval between calls is gap, and failures do not count
	gap        time.Duration // interval between calls before steady; it doubles with each call
	flight     *flight       // the running call, or nil
	lastResult verdict       // result of the last call
	inRow      int32         // number of consecutive calls with that result

	// Probes.mu guards the following fields.
	pod     *v1.Pod
	id      string // ID of the container to which verdict belongs
	verdict verdict
	counts  counts
}

// A flight is a running call.
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

// threshold returns how many consecutive results v are needed to change the verdict to v.
func (c *check) threshold(v verdict) int32 {
	if v == failed {
		return c.spec().FailureThreshold
	}
	return c.spec().SuccessThreshold
}

// The first intervals between calls to a container that is starting. The interval is short, because quick programs
// soon listen, and it doubles with each call. For commands it is longer at first, because each call starts a process.
const (
	firstGap     = 10 * time.Millisecond
	firstExecGap = 100 * time.Millisecond
)

// schedule sets the time of a check's first call. If the container started before the agent and its result is known,
// the first call is at a random time within spread, so that a restarted agent does not make all calls at once.
// Otherwise the container has one period to start. During this period, startup and readiness probes are called almost
// at once and then at growing intervals, and only success counts. A kubelet makes the first call at a random time in
// the first period, so no pod can rely on a later first call.
func (c *check) schedule(now, since time.Time, seen plan.Container, known bool, spread time.Duration) {
	age := now.Round(0).Sub(seen.StartedAt) // a wall-clock time; the clock may have been set in the meantime
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
			c.due = c.earlyCall(from)
		}
	}
}

// beat is the interval of the points in time at which steady calls are made. Calls at the same point in time wake up
// the CPU less often.
const beat = 100 * time.Millisecond

// nextBeat returns the first multiple of beat that is not before t. Periods are whole seconds, so the following calls
// are at multiples of beat as well.
func nextBeat(since, t time.Time) time.Time {
	return since.Add((t.Sub(since) + beat - 1).Truncate(beat))
}

// earlyCall returns the time of the next call of a check that is not steady yet.
func (c *check) earlyCall(now time.Time) time.Time {
	at := now.Add(c.gap)
	c.gap *= 2
	if at.After(c.steady) {
		return c.steady
	}
	return at
}

// scheduleNext sets the time of the next call after f has ended. If a call took longer than one period, the calls
// that were missed are skipped.
func (c *check) scheduleNext(f *flight, since, now time.Time) {
	if f.began.Before(c.steady) {
		if f.answer.verdict != passed || f.answer.err != nil {
			c.due = c.earlyCall(now)
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

// count counts a result and returns the new verdict.
func (c *check) count(v verdict) verdict {
	if c.lastResult != v {
		c.lastResult, c.inRow = v, 0
	}
	c.inRow++
	if c.inRow < c.threshold(v) {
		return c.verdict
	}
	return v
}

// A queue is a heap of checks, ordered by the time of the next call.
type queue []*check

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	c := x.(*check)
	c.index = len(*q)
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q, c.index = (*q)[:last], -1
	return c
}
