package worker

import (
	"context"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// prober counts the calls that read the health of containers.
type prober struct {
	mu sync.Mutex
	n  int64
}

func (p *prober) health(*v1.Pod, plan.Observed) map[string]plan.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return nil
}

func (p *prober) asked() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// TestOneInputPerRound checks that a pod's input is computed once per round. All readers get the same input until the next round.
func TestOneInputPerRound(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.stop()
		probes := &prober{}
		n.health = probes.health
		n.start(t)
		n.setWish("a", Wanted{Pod: pod("a", "")})
		checkRunning(t, n, "a/c#0")
		rounds, asked := n.changed.Load(), probes.asked()
		if rounds == 0 || asked != rounds {
			t.Errorf("health was read %d times in %d rounds", asked, rounds)
		}
		first, second := n.set.Input("a"), n.set.Input("a")
		if first.Now.IsZero() || !first.Now.Equal(second.Now) || first.Want == nil || probes.asked() != asked {
			t.Errorf("an input of %v, then one of %v", first.Now, second.Now)
		}
		if in := n.set.Input("b"); in.Want != nil || in.UID != "b" || probes.asked() != asked {
			t.Errorf("of a pod without a worker: %+v", in)
		}
	})
}

// witness is a hook that records the pod's input during the hook's call.
type witness struct {
	node *node
	seen []plan.Input
}

func (*witness) Name() string { return "witness" }

func (w *witness) Prepare(context.Context, *v1.Pod) error {
	w.seen = append(w.seen, w.node.set.Input("a"))
	return nil
}

// TestFlightIsPublished checks that readers get an input that contains every running action.
func TestFlightIsPublished(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.stop()
		w := &witness{node: n}
		n.hooks = hook.Chain{w}
		n.start(t)
		n.setWish("a", Wanted{Pod: pod("a", "")})
		checkRunning(t, n, "a/c#0")
		if len(w.seen) == 0 {
			t.Fatal("no hook ran")
		}
		if f, busy := w.seen[0].InFlight[""]; !busy || f.Op != plan.RunSandbox {
			t.Errorf("in flight: %+v", w.seen[0].InFlight)
		}
	})
}
