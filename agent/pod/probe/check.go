package probe

import (
	"context"
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// probeOf returns the container's probe of this kind, or nil if it has none.
func (k kind) probeOf(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}[k]
}

// A subject identifies a check within its pod.
type subject struct {
	container string
	kind      kind
}

// allProbes iterates over the probes of a pod. It yields the kind of each probe and the container to which it
// belongs. Only main containers and sidecars have probes.
func allProbes(pod *v1.Pod) iter.Seq2[kind, *v1.Container] {
	return func(yield func(kind, *v1.Container) bool) {
		for when, ctr := range podspec.Containers(&pod.Spec) {
			for k := liveness; k <= startup && (when == podspec.Main || when == podspec.Sidecar); k++ {
				if k.probeOf(ctr) != nil && !yield(k, ctr) {
					return
				}
			}
		}
	}
}

// A check runs one probe of one container of a pod. It exists as long as its pod exists.
type check struct {
	uid types.UID
	subject

	// Only Run's goroutine uses the following fields.
	ctr        *v1.Container
	target     call.Target
	due        time.Time     // time of the next call
	index      int           // index in the queue, or -1
	steady     time.Time     // end of the starting phase, in which calls are more frequent and failures do not count
	gap        time.Duration // interval between calls in the starting phase; it doubles with each call
	running    *probeCall    // the running call, or nil
	lastResult verdict       // result of the last call
	inRow      int32         // number of consecutive calls with that result

	// Probes.mu guards the following fields.
	pod     *v1.Pod
	id      string // ID of the container to which verdict belongs
	verdict verdict
	counts  counts
}

// A probeCall is a call of a probe that is in progress.
type probeCall struct {
	check  *check
	began  time.Time
	cancel context.CancelFunc
	answer answer
}

func (c *check) probeSpec() *v1.Probe { return c.kind.probeOf(c.ctr) }

func durationOf(n int32) time.Duration { return time.Duration(n) * time.Second }

func (c *check) period() time.Duration { return durationOf(max(1, c.probeSpec().PeriodSeconds)) }

func (c *check) timeout() time.Duration { return durationOf(max(1, c.probeSpec().TimeoutSeconds)) }
