package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// A steps is a hook that records its calls. A step can hang for the pod "slow", as it would on a dead mount or an unresponsive server.
type steps struct {
	mu    sync.Mutex
	done  []string
	hangs string
	deaf  chan struct{} // if not nil, the hanging step ignores its context and waits until this channel is closed
}

func (*steps) Name() string { return "steps" }

func (h *steps) step(ctx context.Context, what string, uid types.UID) error {
	h.mu.Lock()
	h.done = append(h.done, what+" "+string(uid))
	hangs, deaf := h.hangs == what && uid == "slow", h.deaf
	h.mu.Unlock()
	switch {
	case hangs && deaf != nil:
		<-deaf
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (h *steps) Prepare(ctx context.Context, p *v1.Pod) error { return h.step(ctx, "prepare", p.UID) }
func (h *steps) Update(ctx context.Context, p *v1.Pod) error  { return h.step(ctx, "update", p.UID) }
func (h *steps) Ended(ctx context.Context, p *v1.Pod) error   { return h.step(ctx, "ended", p.UID) }
func (h *steps) Unmount(ctx context.Context, uid types.UID) error {
	return h.step(ctx, "unmount", uid)
}
func (h *steps) Release(ctx context.Context, uid types.UID) error {
	return h.step(ctx, "release", uid)
}

// takeSteps returns the steps since the previous call of takeSteps. Consecutive equal steps are listed once, because Prepare is called for
// each container.
func (h *steps) takeSteps() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Compact(h.done)
	h.done = nil
	return out
}

func (h *steps) hang(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = what
}

func stepped(t *testing.T, f func(t *testing.T, n *node, h *steps)) {
	synctest.Test(t, func(t *testing.T) {
		n, h := newNode(t, newMachine("app:1", "app:2")), &steps{}
		n.hooks, n.starts = hook.Chain{h}, 1
		n.start(t)
		defer func() { n.stop() }()
		f(t, n, h)
	})
}

func (h *steps) checkSteps(t *testing.T, want ...string) {
	t.Helper()
	if got := h.takeSteps(); !slices.Equal(got, want) {
		t.Errorf("steps %q, not %q", got, want)
	}
}

// TestHooksOfALife checks that a hook is called for each step of a pod's life, once and in order.
func TestHooksOfALife(t *testing.T) {
	stepped(t, func(t *testing.T, n *node, h *steps) {
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyNever, "app:1")})
		h.checkSteps(t, "prepare a")
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyNever, "app:2")})
		time.Sleep(time.Minute)
		h.checkSteps(t, "update a", "prepare a")
		n.stop()
		n.start(t)
		h.checkSteps(t, "update a") // the sandbox still has the first spec
		n.end(t, 0)
		h.checkSteps(t, "ended a")
		time.Sleep(time.Hour)
		h.checkSteps(t)
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyNever, "app:2"), Deleting: true})
		time.Sleep(time.Minute)
		h.checkSteps(t, "release a")
		if _, known := n.Get("a"); known || len(n.set.listWorkers()) > 0 {
			t.Error("not forgotten")
		}
	})
}

// TestAStepThatHangs checks that a hanging step of one pod does not prevent other pods from starting, although only one pod may start at a
// time. The pod continues when the hanging step returns.
func TestAStepThatHangs(t *testing.T) {
	for _, what := range []string{"prepare", "ended", "release"} {
		for _, deaf := range []bool{false, true} {
			stepped(t, func(t *testing.T, n *node, h *steps) {
				h.hang(what)
				if deaf {
					h.deaf = make(chan struct{})
				}
				slow := pod("slow", "")
				slow.Spec.RestartPolicy = v1.RestartPolicyNever
				n.setWish("slow", Wanted{Pod: slow})
				if what != "prepare" {
					checkRunning(t, n, "slow/c#0")
					n.end(t, 0)
				}
				if what == "release" {
					n.setWish("slow", Wanted{Pod: slow, Deleting: true})
				}
				n.setWish("a", Wanted{Pod: pod("a", "")})
				n.setWish("b", Wanted{Pod: pod("b", "")})
				checkRunning(t, n, "a/c#0", "b/c#0")
				n.setWish("b", Wanted{Pod: pod("b", ""), Deleting: true})
				time.Sleep(time.Minute)
				if _, known := n.Get("b"); known {
					t.Errorf("%s hangs, and another pod is not forgotten", what)
				}
				h.hang("")
				n.setWish("slow", Wanted{Pod: slow, Deleting: true})
				if deaf {
					close(h.deaf)
				}
				time.Sleep(10 * time.Minute)
				if _, known := n.Get("slow"); known {
					t.Errorf("%s hung, and the pod is not forgotten", what)
				}
			})
		}
	}
}

// setAnswers sets the result of the next admissions.
func (d *wishes) setAnswers(broken error, refused *plan.End) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken, d.refused = broken, refused
}

// TestVerdict checks that an admission is retried with a back-off if its result cannot be stored. No pod starts without admission. A
// rejection stays until the node requests a new decision.
func TestVerdict(t *testing.T) {
	stepped(t, func(t *testing.T, n *node, h *steps) {
		n.setAnswers(errors.New("disk full"), &plan.End{Reason: "OutOfcpu"})
		n.setWish("a", Wanted{Pod: pod("a", "")})
		time.Sleep(20 * time.Second)
		if n.asked.Load() != 5 { // at 0, 1, 3, 7 and 15 s
			t.Errorf("%d admissions", n.asked.Load())
		}
		h.checkSteps(t)
		n.setAnswers(nil, &plan.End{Reason: "OutOfcpu"})
		time.Sleep(time.Hour)
		checkRunning(t, n)
		if n.asked.Load() != 6 {
			t.Errorf("%d admissions", n.asked.Load())
		}
		if w, _ := n.Get("a"); w.End == nil {
			t.Error("not refused")
		}
		again, _ := n.Get("a")
		again.Reconsider = true
		n.setWish("a", again)
		checkRunning(t, n)
		n.setAnswers(nil, nil)
		n.setWish("a", again)
		checkRunning(t, n, "a/c#0")
		n.stop()
		n.start(t)
		time.Sleep(time.Hour)
		if checkRunning(t, n, "a/c#0"); n.asked.Load() != 8 {
			t.Errorf("%d admissions", n.asked.Load())
		}
	})
}

// TestVerdictDoesNotShow checks that a worker does not loop if an admission changes nothing visible.
func TestVerdictDoesNotShow(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.mute = true
		n.setWish("a", Wanted{Pod: pod("a", "")})
		time.Sleep(10 * time.Minute)
		if asked := n.asked.Load(); asked < 10 || asked > 20 {
			t.Errorf("%d admissions", n.asked.Load())
		}
	})
}
