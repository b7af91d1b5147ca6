package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "worker")) }

// eventRecorder records each event as a line. Equal events have one line.
type eventRecorder struct {
	mu    sync.Mutex
	lines map[types.UID][]string
	count map[string]int
}

func (h *eventRecorder) record(e eventtest.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == nil {
		h.lines, h.count = map[types.UID][]string{}, map[string]int{}
	}
	line := fmt.Sprintf("%s %s %s: %s", strings.TrimSpace(e.Container+" "+e.Type), e.Reason, e.Pod.UID, e.Message)
	if h.count[line]++; h.count[line] == 1 {
		h.lines[e.Pod.UID] = append(h.lines[e.Pod.UID], line)
	}
}

// checkEvents checks the events of a pod since the previous call. The pod's own events come first, then the events of each container in
// order.
func (h *eventRecorder) checkEvents(t *testing.T, uid types.UID, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.lines[uid], func(a, b string) int { return cmp.Compare(a[0], b[0]) })
	if !slices.Equal(h.lines[uid], want) {
		t.Errorf("events of %s:\n  %s\nnot\n  %s", uid, strings.Join(h.lines[uid], "\n  "), strings.Join(want, "\n  "))
	}
	delete(h.lines, uid)
}

func (h *eventRecorder) times(line string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[line]
}

func TestEventsOfALife(t *testing.T) {
	m := newMachine()
	m.pull = func(context.Context, string) error { time.Sleep(1500 * time.Millisecond); return nil } // in the bubble's time
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", v1.PullAlways)})
		time.Sleep(time.Minute)
		n.events.checkEvents(t, "a",
			`c Normal Pulling a: Pulling image "app:1"`,
			`c Normal Pulled a: Successfully pulled image "app:1" in 1.5s (1.5s including waiting). Image size: 1 bytes.`,
			"c Normal Created a: Container created", "c Normal Started a: Container started")
		n.setWish("b", Wanted{Pod: pod("b", v1.PullIfNotPresent)})
		n.events.checkEvents(t, "b", `c Normal Pulled b: Container image "app:1" already present on machine and can be accessed by the pod`,
			"c Normal Created b: Container created", "c Normal Started b: Container started")

		changed := pod("b", v1.PullIfNotPresent)
		changed.Spec.Containers[0].Image = "app:1@new"
		changed.Spec.Containers[0].ImagePullPolicy = v1.PullNever
		n.setWish("b", Wanted{Pod: changed})
		time.Sleep(time.Minute)
		n.events.checkEvents(t, "b", "c Normal Killing b: Container c definition changed, will be restarted",
			`c Warning InspectFailed b: Failed to apply default image tag "app:1@new": couldn't parse image name "app:1@new": invalid reference format`,
			"c Warning Failed b: Error: InvalidImageName")

		n.LoseSandbox(n.set.Input("a").Observed.Sandboxes[0].ID)
		time.Sleep(5 * time.Minute)
		n.events.checkEvents(t, "a", "Normal SandboxChanged a: Pod sandbox changed, it will be killed and re-created.",
			"c Normal Killing a: Stopping container c")

		n.setWish("b", Wanted{Pod: changed, Deleting: true})
		n.setWish("a", Wanted{Pod: pod("a", v1.PullAlways), Deleting: true})
		time.Sleep(time.Minute)
		if got := n.events.times("c Normal Killing a: Stopping container c"); got != 2 || n.countLeft(t) > 0 {
			t.Errorf("killed %d times", got)
		}
	})
}

// TestEventsOfACrashLoop checks that each crash causes one event, although the worker wakes many times between crashes.
func TestEventsOfACrashLoop(t *testing.T) {
	m := newMachine("app:1")
	m.life = time.Second
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", v1.PullNever)})
		for range 300 {
			time.Sleep(time.Second)
			n.set.Poke("a")
		}
		backOff := "c Warning BackOff a: Back-off restarting failed container c in pod a_default(a)"
		n.events.checkEvents(t, "a", `c Normal Pulled a: Container image "app:1" already present on machine and can be accessed by the pod`,
			"c Normal Created a: Container created", "c Normal Started a: Container started", backOff)
		if starts, waits := n.events.times("c Normal Started a: Container started"), n.events.times(backOff); waits != starts-1 || waits != 5 {
			t.Errorf("%d starts, %d back-offs", starts, waits)
		}
	})
}

func TestEventsOfPullsThatFail(t *testing.T) {
	m := newMachine("here:1")
	err := errors.New("404")
	m.pull = func(context.Context, string) error { return err }
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		pulling, failed := `c Normal Pulling a: Pulling image "app:1"`,
			`c Warning Failed a: Failed to pull image "app:1": failed to pull and unpack image "app:1": 404`
		n.events.checkEvents(t, "a", pulling, failed, "c Warning Failed a: Error: ErrImagePull")
		time.Sleep(5 * time.Second)
		n.events.checkEvents(t, "a", `c Normal BackOff a: Back-off pulling image "app:1"`, "c Warning Failed a: Error: ImagePullBackOff")
		time.Sleep(time.Hour)
		n.events.checkEvents(t, "a")
		if p, f, b := n.events.times(pulling), n.events.times(failed),
			n.events.times(`c Normal BackOff a: Back-off pulling image "app:1"`); p != f || b > p || b*4 < p*3 ||
			p < 12 { // a wait shorter than plan.PullSettle causes no event; each wait may be that short
			t.Errorf("%d pulls, %d failures, %d back-offs", p, f, b)
		}

		never := pod("b", v1.PullNever)
		n.setWish("b", Wanted{Pod: never})
		n.events.checkEvents(t, "b", `c Warning ErrImageNeverPull b: Container image "app:1" is not present with pull policy of Never`,
			"c Warning Failed b: Error: ErrImageNeverPull")

		err = &net.OpError{Op: "dial", Err: errors.New("no route to host")}
		here := pod("d", v1.PullAlways)
		here.Spec.Containers[0].Image = "here:1"
		n.setWish("d", Wanted{Pod: here})
		n.events.checkEvents(t, "d", `c Normal Pulling d: Pulling image "here:1"`,
			`c Warning Failed d: Failed to pull image "here:1": failed to pull and unpack image "here:1": dial: no route to host`,
			`c Normal Pulled d: Container image "here:1" already present on machine, and its registry cannot be reached`,
			"c Normal Created d: Container created", "c Normal Started d: Container started")
	})
}

// A claimHook is a hook that makes pods wait for a claim. Its error has a kubelet's text.
type claimHook struct{ error }

func (claimHook) Name() string                             { return "claims" }
func (c claimHook) Prepare(context.Context, *v1.Pod) error { return c }
func (claimHook) Reason() string                           { return plan.FailedPrepareDynamicResources }

// TestEventsOfClaims checks that the event about a failed hook has the reason that the hook returns.
func TestEventsOfClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1"))
		n.hooks = hook.Chain{claimHook{errors.New("Failed to prepare dynamic resources: no driver")}}
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
		n.events.checkEvents(t, "a", "Warning FailedPrepareDynamicResources a: Failed to prepare dynamic resources: no driver")
	})
}

// TestEventOfLongName checks that the event about an excessively long hostname has the same text as in a kubelet.
func TestEventOfLongName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1"))
		n.start(t)
		defer n.stop()
		p := pod("a", v1.PullIfNotPresent)
		p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "web", "sub", new(true)
		p.Namespace = strings.Repeat("x", 60)
		n.setWish("a", Wanted{Pod: p})
		n.events.checkEvents(t, "a",
			"Warning FailedCreatePodSandBox a: Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN web.sub."+
				p.Namespace+".svc. is too long (64 characters is the max, 73 characters requested)")
	})
}

func TestEventsOfFailures(t *testing.T) {
	m := newMachine("app:1")
	var failing atomic.Pointer[string]
	fail := func(call string) { failing.Store(&call) }
	fail("")
	m.Fail = func(call, _ string) error {
		if call == *failing.Load() {
			return fmt.Errorf("%s broke", call)
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		n, object := newNode(t, m), &missingObjectHook{}
		n.hooks = hook.Chain{object}
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
		n.events.checkEvents(t, "a", "Warning FailedMount a: configmap not found")
		object.there.Store(true)
		fail("RunPodSandbox")
		n.set.RetryPod("a")
		n.events.checkEvents(t, "a", "Warning FailedCreatePodSandBox a: Failed to create pod sandbox: RunPodSandbox broke")
		fail("CreateContainer")
		time.Sleep(time.Minute)
		n.events.checkEvents(t, "a", `c Normal Pulled a: Container image "app:1" already present on machine and can be accessed by the pod`,
			"c Warning Failed a: Error: CreateContainer broke")
		fail("StartContainer")
		time.Sleep(time.Minute)
		n.events.checkEvents(t, "a", "c Normal Created a: Container created", "c Warning Failed a: Error: StartContainer broke")
		fail("")
		time.Sleep(time.Minute)
		n.events.checkEvents(t, "a", "c Normal Started a: Container started")
		fail("StopContainer")
		n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent), Deleting: true})
		time.Sleep(2*time.Second + time.Millisecond) // the fake runtime uses the whole grace period
		n.events.checkEvents(t, "a", "Warning FailedKillPod a: error killing pod: stop container c (c): StopContainer broke",
			"c Normal Killing a: Stopping container c")
	})
}

// TestEventsOfADeadline checks that an exceeded deadline causes one event. A cancelled action causes none.
func TestEventsOfADeadline(t *testing.T) {
	m := newMachine("app:1")
	m.pull = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, m, func(t *testing.T, n *node) {
		p := pod("a", v1.PullNever)
		p.Spec.ActiveDeadlineSeconds = new(int64(60))
		p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "slow", Image: "slow:1"})
		n.setWish("a", Wanted{Pod: p})
		n.events.checkEvents(t, "a", `c Normal Pulled a: Container image "app:1" already present on machine and can be accessed by the pod`,
			"c Normal Created a: Container created", "c Normal Started a: Container started", `slow Normal Pulling a: Pulling image "slow:1"`)
		time.Sleep(2 * time.Minute)
		n.events.checkEvents(t, "a", "Normal DeadlineExceeded a: Pod was active on the node longer than the specified deadline",
			"c Normal Killing a: Stopping container c")
		if n := n.events.times("Normal " + plan.DeadlineExceeded + " a: Pod was active on the node longer than the specified deadline"); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

// TestKilling checks that the event about a stopped container gives the reason in a kubelet's words.
func TestKilling(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	pod := &v1.Pod{}
	pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	pod.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}}
	pod.Spec.Containers = []v1.Container{{Name: "main"}, {Name: "once", RestartPolicy: &never}}
	lives, starts := plan.Health{Started: true, Unhealthy: true}, plan.Health{Unhealthy: true}
	for _, tt := range []struct {
		container string
		health    plan.Health
		deleting  bool
		want      string
	}{
		{"main", lives, false, "Container main failed liveness probe, will be restarted"},
		{"main", starts, false, "Container main failed startup probe, will be restarted"},
		{"once", lives, false, "Container once failed liveness probe"},
		{"side", lives, false, "Init container side failed liveness probe"},
		{"side", starts, false, "Init container side failed startup probe"},
		{"main", lives, true, "Stopping container main"},
		{"main", plan.Health{Started: true}, false, "Stopping container main"},
	} {
		in := plan.Input{Want: pod, Deleting: tt.deleting, Health: map[string]plan.Health{"id": tt.health}}
		if got := killingMessage(in, plan.Action{Op: plan.StopContainer, Container: tt.container, ID: "id"}); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
