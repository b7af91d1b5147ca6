package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// A handlers runs the lifecycle hooks of a test. A hook lasts as long as its sleep action, or hangs if that duration is negative. A hook
// with a command fails. The value survives restarts of the agent.
type handlers struct {
	mu       sync.Mutex
	ran      []string // each element is POD/CONTAINER HOOK
	returned map[string]bool
	cut      time.Time // time at which a hook was cancelled

	interrupted, stored map[string]plan.Interruption
	full                bool // nothing can be stored
}

func newHandlers() *handlers {
	return &handlers{returned: map[string]bool{}, interrupted: map[string]plan.Interruption{}, stored: map[string]plan.Interruption{}}
}

func (h *handlers) MarkInterrupted(_ context.Context, id string, kind plan.Interruption, stores bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupted[id] = max(h.interrupted[id], kind)
	switch {
	case stores && h.full:
		return errors.New("no space left on device")
	case stores:
		h.stored[id] = h.interrupted[id]
	}
	return nil
}

func (h *handlers) interruption(id string) plan.Interruption {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.interrupted[id]
}

// forgetUnstored keeps only the interruptions that the next agent knows.
func (h *handlers) forgetUnstored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupted = maps.Clone(h.stored)
}

func (h *handlers) Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, hook *v1.LifecycleHandler) error {
	name := pod.Name + "/" + ctr.Name + " preStop"
	if l := ctr.Lifecycle; l.PostStart == hook {
		name = pod.Name + "/" + ctr.Name + " postStart"
	}
	h.mu.Lock()
	h.ran = append(h.ran, name)
	h.mu.Unlock()
	end := time.After(time.Duration(hook.Sleep.Seconds) * time.Second)
	if hook.Sleep.Seconds < 0 {
		end = nil
	}
	select {
	case <-end:
	case <-ctx.Done():
		h.mu.Lock()
		h.cut = time.Now()
		h.mu.Unlock()
		return ctx.Err()
	}
	if hook.Exec != nil {
		return errors.New("it says why")
	}
	return nil
}

func (h *handlers) MarkReturned(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returned[id] = true
	return nil
}

func (h *handlers) Forget(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.returned, id)
	delete(h.interrupted, id)
	delete(h.stored, id)
	return nil
}

func (h *handlers) hasReturned(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.returned[id]
}

func (h *handlers) checkCalls(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.ran, want) {
		t.Errorf("hooks that ran: %q, not %q", h.ran, want)
	}
	h.ran = nil
}

func (h *handlers) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ran)
}

const forEver = -1

func takes(seconds int64) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}
}

func fails(seconds int64) *v1.LifecycleHandler {
	h := takes(seconds)
	h.Exec = &v1.ExecAction{}
	return h
}

func hooking(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1"))
		n.start(t)
		defer func() { n.stop() }()
		f(t, n)
	})
}

// withHooks returns a pod with one main container for each element of hooks.
func withHooks(uid string, hooks ...v1.Lifecycle) *v1.Pod {
	p := pod(uid, v1.PullNever)
	p.Spec.Containers = nil
	for i := range hooks {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('c' + i)), Image: "app:1", ImagePullPolicy: v1.PullNever, Lifecycle: &hooks[i]})
	}
	return p
}

// TestPostStart checks that a container counts as started when its postStart hook has returned. The pod's next container waits for the
// hook. Other pods start without delay.
func TestPostStart(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: withHooks("a", v1.Lifecycle{PostStart: takes(10)}, v1.Lifecycle{})})
		n.setWish("b", Wanted{Pod: withHooks("b", v1.Lifecycle{})})
		checkRunning(t, n, "a/c#0", "b/c#0")
		started := func() bool {
			in := n.set.Input("a")
			c, _ := in.Observed.Newest("c")
			return plan.IsStarted(in, c)
		}
		if started() {
			t.Error("the container counts as started before its hook has returned")
		}
		time.Sleep(11 * time.Second)
		checkRunning(t, n, "a/c#0", "a/d#0", "b/c#0")
		if !started() {
			t.Error("the container does not count as started")
		}
		n.marks.checkCalls(t, "a/c postStart")
	})
}

// TestPostStartFails checks that a container is stopped if its postStart hook fails. Its restart policy decides about a restart, which has
// a back-off.
func TestPostStartFails(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		p := withHooks("a", v1.Lifecycle{PostStart: fails(1), PreStop: takes(1)})
		p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		n.setWish("a", Wanted{Pod: p})
		time.Sleep(1500 * time.Millisecond)
		if f := n.set.Input("a").Failed[plan.Key{Container: "c", Op: plan.PostStart}]; f.Reason != plan.PostStartHookError || !strings.Contains(f.Message, "it says why") || f.ID == "" {
			t.Errorf("failure %+v", f)
		}
		time.Sleep(7 * time.Second) // the fake runtime uses the whole grace period
		n.events.checkEvents(t, "a", `c Normal Pulled a: Container image "app:1" already present on machine and can be accessed by the pod`,
			"c Normal Created a: Container created", "c Normal Started a: Container started",
			"c Warning FailedPostStartHook a: PostStartHook failed", "c Normal Killing a: FailedPostStartHook")
		time.Sleep(time.Hour)
		n.machine.mu.Lock()
		starts := len(n.started)
		n.machine.mu.Unlock()
		if starts < 10 || starts > 20 {
			t.Errorf("%d starts in an hour", starts)
		}
		never := withHooks("b", v1.Lifecycle{PostStart: fails(1)})
		never.Spec.RestartPolicy = v1.RestartPolicyNever
		n.setWish("b", Wanted{Pod: never})
		time.Sleep(time.Hour)
		if in := n.set.Input("b"); !plan.IsFinished(in) {
			t.Errorf("a pod with the policy Never restarts: %+v", in.Observed)
		}
	})
}

// TestPostStartOverRestarts checks that a restarted agent does not run a postStart hook again if the hook has returned. It repeats an
// interrupted hook.
func TestPostStartOverRestarts(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: withHooks("a", v1.Lifecycle{PostStart: takes(10)})})
		time.Sleep(5 * time.Second)
		n.stop()
		n.start(t)
		synctest.Wait()
		n.marks.checkCalls(t, "a/c postStart", "a/c postStart")
		time.Sleep(11 * time.Second)
		n.stop()
		n.start(t)
		time.Sleep(time.Hour)
		n.marks.checkCalls(t)
		checkRunning(t, n, "a/c#0")
		n.stop()
		n.Reboot()
		n.start(t)
		time.Sleep(time.Minute)
		n.marks.checkCalls(t, "a/c postStart")
		checkRunning(t, n, "a/c#1")
		n.setWish("a", Wanted{Pod: withHooks("a", v1.Lifecycle{PostStart: takes(10)}), Deleting: true})
		time.Sleep(time.Hour)
		n.marks.mu.Lock()
		defer n.marks.mu.Unlock()
		if len(n.marks.returned) > 0 {
			t.Errorf("marks of removed containers: %v", n.marks.returned)
		}
	})
}

// TestPostStartHangs checks that a hanging postStart hook does not delay the deletion of its pod.
func TestPostStartHangs(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		p := withHooks("a", v1.Lifecycle{PostStart: takes(forEver)})
		n.setWish("a", Wanted{Pod: p})
		time.Sleep(time.Hour)
		n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 3 * time.Second})
		time.Sleep(4 * time.Second)
		if _, known := n.Get("a"); known {
			t.Error("the pod was not removed")
		}
	})
}

// TestPreStop checks that the preStop hook and the stop of the container share the grace period, with at least two seconds for the stop. A
// hook that fails or hangs does not change this.
func TestPreStop(t *testing.T) {
	for name, tt := range map[string]struct {
		hook  *v1.LifecycleHandler
		grace time.Duration
		took  time.Duration // time until the pod is removed; the fake runtime uses the whole grace period
		event string
	}{
		"returns":  {takes(4), 10 * time.Second, 10 * time.Second, ""},
		"fails":    {fails(4), 10 * time.Second, 10 * time.Second, "c Warning FailedPreStopHook a: PreStopHook failed"},
		"hangs":    {takes(forEver), 10 * time.Second, 12 * time.Second, ""},
		"no grace": {takes(forEver), 0, 3 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			hooking(t, func(t *testing.T, n *node) {
				p := withHooks("a", v1.Lifecycle{PreStop: tt.hook})
				n.setWish("a", Wanted{Pod: p})
				n.events.checkEvents(t, "a", `c Normal Pulled a: Container image "app:1" already present on machine and can be accessed by the pod`,
					"c Normal Created a: Container created", "c Normal Started a: Container started")
				began := time.Now()
				n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: tt.grace})
				for n.countLeft(t) > 0 {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began).Round(time.Second); took != tt.took {
					t.Errorf("took %v, not %v", took, tt.took)
				}
				want := []string{"c Normal Killing a: Stopping container c"}
				if tt.event != "" {
					want = append(want, tt.event)
				}
				n.events.checkEvents(t, "a", want...)
			})
		})
	}
}

// TestPreStopCommandLingers checks a preStop hook whose time has expired. As with a kubelet, a command continues while its container stops.
// The stop does not wait for the command, and the command is cancelled soon afterwards. A sleep action is cancelled at once.
func TestPreStopCommandLingers(t *testing.T) {
	for name, tt := range map[string]struct {
		hook *v1.LifecycleHandler
		cut  time.Duration
	}{
		"command": {fails(forEver), 10*time.Second + preStopExtra},
		"sleep":   {takes(forEver), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			hooking(t, func(t *testing.T, n *node) {
				p := withHooks("a", v1.Lifecycle{PreStop: tt.hook})
				n.setWish("a", Wanted{Pod: p})
				began := time.Now()
				n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 10 * time.Second})
				for n.countLeft(t) > 0 {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began).Round(time.Second); took != 12*time.Second {
					t.Errorf("the pod took %v", took)
				}
				time.Sleep(time.Minute)
				n.marks.mu.Lock()
				defer n.marks.mu.Unlock()
				if cut := n.marks.cut.Sub(began).Round(time.Second); cut != tt.cut {
					t.Errorf("the hook was ended after %v, not %v", cut, tt.cut)
				}
			})
		})
	}
}

// TestLessGraceForHook checks that the grace period can be shortened while a preStop hook runs. The hook does not run again.
func TestLessGraceForHook(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		p := withHooks("a", v1.Lifecycle{PreStop: takes(50)})
		n.setWish("a", Wanted{Pod: p})
		began := time.Now()
		n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 100 * time.Second})
		time.Sleep(10 * time.Second)
		n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 30 * time.Second})
		for n.countLeft(t) > 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began).Round(time.Second); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
		n.marks.checkCalls(t, "a/c preStop")
	})
}

// TestPreStopOverRestarts checks that a restarted agent runs the preStop hook of a terminating pod once more, as a kubelet does.
func TestPreStopOverRestarts(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		p := withHooks("a", v1.Lifecycle{PreStop: takes(20)})
		n.setWish("a", Wanted{Pod: p})
		n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 30 * time.Second})
		time.Sleep(10 * time.Second)
		n.stop()
		n.start(t)
		time.Sleep(time.Hour)
		n.marks.checkCalls(t, "a/c preStop", "a/c preStop")
		if _, known := n.Get("a"); known {
			t.Error("the pod was not removed")
		}
	})
}

// TestPreStopOfEnded checks that a preStop hook is cancelled when its container exits.
func TestPreStopOfEnded(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		p := withHooks("a", v1.Lifecycle{PreStop: takes(100)})
		n.setWish("a", Wanted{Pod: p})
		c, _ := n.set.Input("a").Observed.Newest("c")
		n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 200 * time.Second})
		n.End(c.ID, 0)
		time.Sleep(time.Second)
		if n.countLeft(t) > 0 {
			t.Error("the hook of an exited container continues")
		}
	})
}

// TestSidecarsStop checks that sidecars stop after the main containers, in reverse order. All preStop hooks begin to run when the deletion
// begins.
func TestSidecarsStop(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		always := v1.ContainerRestartPolicyAlways
		p := withHooks("a", v1.Lifecycle{})
		for _, name := range []string{"s", "t"} {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: name, Image: "app:1", ImagePullPolicy: v1.PullNever, RestartPolicy: &always, Lifecycle: &v1.Lifecycle{PreStop: takes(2)}})
		}
		n.setWish("a", Wanted{Pod: p})
		checkRunning(t, n, "a/c#0", "a/s#0", "a/t#0")
		before := len(n.Calls())
		n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: 30 * time.Second})
		time.Sleep(time.Second)
		if ran := n.marks.count(); ran != 2 {
			t.Errorf("%d hooks of sidecars run while the main container ends", ran)
		}
		in := n.set.Input("a")
		for _, c := range in.Observed.Containers {
			if c.Name == "t" {
				n.End(c.ID, 7) // the container is not restarted
			}
		}
		time.Sleep(time.Hour)
		var stops []string
		for _, call := range n.Calls()[before:] {
			if strings.HasPrefix(call, "StopContainer") || strings.HasPrefix(call, "StartContainer") {
				stops = append(stops, call)
			}
		}
		if want := []string{"StopContainer a/c", "StopContainer a/s"}; !slices.Equal(stops, want) {
			t.Errorf("%q, not %q", stops, want)
		}
		if ran := n.marks.count(); ran != 2 {
			t.Errorf("%d hooks ran", ran)
		}
	})
}

// TestEphemeral checks that an ephemeral container starts once and stops with its pod. If its target runs, it shares the target's
// processes. The pod's end does not wait for it.
func TestEphemeral(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		debug := func(target string) *v1.Pod {
			p := withHooks("a", v1.Lifecycle{})
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{TargetContainerName: target,
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "app:1", ImagePullPolicy: v1.PullNever}}}
			return p
		}
		n.setWish("a", Wanted{Pod: withHooks("a", v1.Lifecycle{})})
		checkRunning(t, n, "a/c#0")
		n.setWish("a", Wanted{Pod: debug("nobody")})
		time.Sleep(time.Second)
		if f := n.set.Input("a").Failed[plan.Key{Container: "e", Op: plan.StartContainer}]; f.Reason != plan.CreateContainerConfigError || !strings.Contains(f.Message, "unable to find target container nobody") {
			t.Errorf("failure %+v", f)
		}
		n.setWish("a", Wanted{Pod: debug("c")})
		time.Sleep(time.Second)
		checkRunning(t, n, "a/c#0", "a/e#0")
		in := n.set.Input("a")
		c, _ := in.Observed.Newest("c")
		e, _ := in.Observed.Newest("e")
		n.machine.mu.Lock()
		made := n.configs[e.ID]
		n.machine.mu.Unlock()
		if o := made.GetLinux().GetSecurityContext().GetNamespaceOptions(); o.GetPid() != api.NamespaceMode_TARGET || o.GetTargetId() != c.ID {
			t.Errorf("namespaces %v of %s", o, c.ID)
		}
		n.End(e.ID, 3)
		time.Sleep(time.Hour)
		checkRunning(t, n, "a/c#0")
		n.stop()
		n.start(t)
		time.Sleep(time.Hour)
		checkRunning(t, n, "a/c#0")
	})
}

// TestRestartAll checks that all containers of a pod restart if a container exits with an exit code of its restart rules. The init
// containers run first. A restart of the agent does not interrupt this.
func TestRestartAll(t *testing.T) {
	hooking(t, func(t *testing.T, n *node) {
		p := withHooks("a", v1.Lifecycle{PreStop: takes(100)}, v1.Lifecycle{})
		never := v1.ContainerRestartPolicyNever
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		p.Spec.Containers[1].RestartPolicy = &never
		p.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
		p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "app:1", ImagePullPolicy: v1.PullNever}}
		end := func(name string, code int32) {
			c, _ := n.set.Input("a").Observed.Newest(name)
			n.End(c.ID, code)
			synctest.Wait()
		}
		n.setWish("a", Wanted{Pod: p})
		end("i", 0)
		checkRunning(t, n, "a/c#0", "a/d#0")
		n.stop()
		d, _ := n.set.Input("a").Observed.Newest("d")
		n.End(d.ID, 42)
		n.start(t)
		time.Sleep(3 * time.Second)
		checkRunning(t, n, "a/i#1")
		n.marks.checkCalls(t)
		end("i", 0)
		checkRunning(t, n, "a/c#1", "a/d#1")
		if in := n.set.Input("a"); plan.CurrentRound(in) != 1 || plan.EarlierRoundRuns(in) {
			t.Errorf("round %d", plan.CurrentRound(in))
		}
		end("d", 1) // the container has no rule for this exit code
		checkRunning(t, n, "a/c#1")
	})
}
