package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// otherPod returns a pod with a short grace period. Its container has the given image.
func otherPod(policy v1.RestartPolicy, image string) *v1.Pod {
	p, grace := pod("a", ""), int64(5)
	p.Spec.Containers[0].Image = image
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = policy, &grace
	return p
}

// runningImage returns the image of the only running container.
func (n *node) runningImage(t *testing.T) string {
	t.Helper()
	running := &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}
	r, err := n.ListContainers(t.Context(), &api.ListContainersRequest{Filter: &api.ContainerFilter{State: running}})
	if err != nil || len(r.Containers) != 1 {
		t.Fatal(r, err)
	}
	return r.Containers[0].Image.UserSpecifiedImage
}

// TestDefinitionChanges checks that a container is replaced when its image changes, even if the agent was stopped at that time. This
// applies to all restart policies. Other changes do not replace the container.
func TestDefinitionChanges(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		bubble(t, newMachine("app:1", "app:2", "app:3"), func(t *testing.T, n *node) {
			n.setWish("a", Wanted{Pod: otherPod(policy, "app:1")})
			checkRunning(t, n, "a/c#0")
			n.setWish("a", Wanted{Pod: otherPod(policy, "app:2")})
			time.Sleep(4 * time.Second)
			checkRunning(t, n, "a/c#0")
			time.Sleep(time.Second)
			checkRunning(t, n, "a/c#1")
			n.stop()
			n.start(t)
			time.Sleep(time.Hour)
			if checkRunning(t, n, "a/c#1"); n.runningImage(t) != "app:2" {
				t.Errorf("image %s", n.runningImage(t))
			}
			n.stop()
			n.wishes.pods["a"] = Wanted{Pod: otherPod(policy, "app:3")}
			n.start(t)
			time.Sleep(5 * time.Second)
			if checkRunning(t, n, "a/c#2"); n.runningImage(t) != "app:3" {
				t.Errorf("image %s", n.runningImage(t))
			}
			changed := otherPod(policy, "app:3") // these fields may change without a restart
			changed.Labels = map[string]string{"a": "b"}
			changed.Spec.Containers[0].Args = []string{"x"}
			n.setWish("a", Wanted{Pod: changed})
			time.Sleep(time.Hour)
			checkRunning(t, n, "a/c#2")
		})
	}
}

// TestDefinitionOfEnded checks that a finished pod stays finished after a change of its spec.
func TestDefinitionOfEnded(t *testing.T) {
	m := newMachine("app:1", "app:2")
	m.life = time.Minute
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: otherPod("Never", "app:1")})
		time.Sleep(2 * time.Minute)
		n.setWish("a", Wanted{Pod: otherPod("Never", "app:2")})
		time.Sleep(time.Hour)
		checkRunning(t, n)
		n.stop()
		n.Reboot()
		n.start(t)
		time.Sleep(time.Hour)
		if checkRunning(t, n); !plan.IsFinished(n.set.Input("a")) {
			t.Error("the pod has not finished")
		}
	})
}

// A hashlessRuntime creates containers without a hash of their definition. Older agents did the same.
type hashlessRuntime struct{}

func (hashlessRuntime) Name() string { return "hashless" }

func (hashlessRuntime) Container(_ context.Context, _ *v1.Pod, _ *v1.Container, out *api.ContainerConfig) error {
	delete(out.Annotations, "io.kubernetes.container.hash")
	return nil
}

// TestNoHash checks that an agent does not restart containers that an older agent has created.
func TestNoHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1", "app:2"))
		n.hooks = hook.Chain{hashlessRuntime{}}
		n.start(t)
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:1")})
		n.stop()
		n.hooks = nil
		n.start(t)
		defer func() { n.stop() }()
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:2")})
		time.Sleep(time.Hour)
		checkRunning(t, n, "a/c#0")
	})
}

// TestNewImageAtOnce checks that a container starts with a new image at once. It does not wait for the back-off of the old image, for a
// hanging pull or for the old container's crash loop.
func TestNewImageAtOnce(t *testing.T) {
	m := newMachine("app:1", "app:2")
	m.pull = func(ctx context.Context, name string) error {
		if name == "slow:1" {
			<-ctx.Done()
			return ctx.Err()
		}
		return errNoEffect
	}
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: otherPod("Never", "missing:1")})
		time.Sleep(11 * time.Second)
		if f := n.failure("a"); f.N < 2 || f.Reason != plan.ErrImagePull {
			t.Fatalf("%+v", f)
		}
		n.setWish("a", Wanted{Pod: otherPod("Never", "slow:1")})
		if f := n.failure("a"); f.N != 0 {
			t.Errorf("the failure of another image counts: %+v", f)
		}
		n.setWish("a", Wanted{Pod: otherPod("Never", "app:1")})
		checkRunning(t, n, "a/c#0")

		// The new image cannot be pulled. The old container exits, and the pod waits for the image.
		n.setWish("a", Wanted{Pod: otherPod("Never", "missing:2")})
		time.Sleep(time.Hour)
		checkRunning(t, n)
		if f := n.failure("a"); f.Reason != plan.ErrImagePull {
			t.Errorf("%+v", f)
		}
		m.life = time.Second
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:1")})
		time.Sleep(time.Hour)
		crashes := n.set.Input("a").Observed.Containers
		if c := crashes[len(crashes)-1]; c.Streak < 5 {
			t.Fatalf("no crash loop: %+v", crashes)
		}
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:2")})
		if n.runningImage(t) != "app:2" {
			t.Errorf("image %s", n.runningImage(t))
		}
		if c, _ := n.set.Input("a").Observed.Newest("c"); c.Streak != 0 {
			t.Errorf("crashes of another image count: %+v", c)
		}
	})
}

// TestLessGrace checks that a second deletion can shorten the grace period of a pod. The new period counts from the first deletion.
func TestLessGrace(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		began := time.Now()
		end := func(grace time.Duration) { n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true, Grace: grace}) }
		end(time.Hour)
		time.Sleep(10 * time.Second)
		end(25 * time.Second)
		time.Sleep(14 * time.Second)
		checkRunning(t, n, "a/c#0")
		for n.countLeft(t) > 0 {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(began); d.Round(time.Second) != 25*time.Second {
			t.Errorf("took %v", d)
		}
	})
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) { // the new period is shorter than the time since the first deletion
		n.setWish("a", Wanted{Pod: pod("a", "")})
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true, Grace: time.Hour})
		time.Sleep(time.Minute)
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true, Grace: time.Second})
		time.Sleep(2001 * time.Millisecond)
		if checkRunning(t, n); n.countLeft(t) > 0 {
			t.Error("containers are left")
		}
	})
}

// TestLeastGrace checks that a container always has two seconds between its stop signal and SIGKILL, whoever gives the grace period. The
// preStop hook of a pod that ends has one second. If one container is stopped, its hook does not run without a grace period.
func TestLeastGrace(t *testing.T) {
	type cause struct {
		ends bool // the pod ends
		do   func(t *testing.T, n *node, p *v1.Pod, grace time.Duration)
	}
	var since time.Time
	for name, tt := range map[string]cause{
		"the deletion": {true, func(_ *testing.T, n *node, p *v1.Pod, grace time.Duration) {
			n.setWish("a", Wanted{Pod: p, Deleting: true, Grace: grace})
		}},
		"the pod's spec": {true, func(_ *testing.T, n *node, p *v1.Pod, grace time.Duration) {
			p.Spec.TerminationGracePeriodSeconds = new(int64(grace / time.Second))
			n.setWish("a", Wanted{Pod: p, End: &plan.End{Reason: "Preempting"}})
		}},
		"an eviction": {true, func(_ *testing.T, n *node, p *v1.Pod, grace time.Duration) {
			n.setWish("a", Wanted{Pod: p, End: &plan.End{Reason: plan.Evicted, Grace: max(grace, time.Nanosecond)}})
		}},
		"a shutdown": {true, func(_ *testing.T, n *node, p *v1.Pod, _ time.Duration) {
			since = time.Now()
			n.set.Poke("a")
		}},
		"a user's request": {false, func(t *testing.T, n *node, _ *v1.Pod, grace time.Duration) {
			n.set.Restart("a", "c", plan.Restart{ID: n.current(t).ID, Grace: grace})
		}},
		"another image": {false, func(_ *testing.T, n *node, p *v1.Pod, grace time.Duration) {
			p.Spec.TerminationGracePeriodSeconds = new(int64(grace / time.Second))
			p.Spec.Containers[0].Image = "app:2"
			n.setWish("a", Wanted{Pod: p})
		}},
	} {
		for _, grace := range []time.Duration{0, time.Second} {
			bubble(t, newMachine("app:1", "app:2"), func(t *testing.T, n *node) {
				since = time.Time{}
				n.off = func(*v1.Pod) (time.Time, time.Duration) { return since, grace }
				n.stop()
				n.start(t)
				p := withHooks("a", v1.Lifecycle{PreStop: takes(forEver)})
				n.setWish("a", Wanted{Pod: p})
				checkRunning(t, n, "a/c#0")
				began, want := time.Now(), 3*time.Second
				if !tt.ends && grace == 0 {
					want = 2 * time.Second
				}
				tt.do(t, n, p.DeepCopy(), grace)
				time.Sleep(want - time.Millisecond)
				checkRunning(t, n, "a/c#0")
				runs := func() bool {
					c, _ := n.set.Input("a").Observed.Newest("c")
					return c.State == plan.Running && c.Attempt == 0
				}
				for runs() {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began).Round(time.Second); took != want {
					t.Errorf("%s gives %v: the container ends after %v, not %v", name, grace, time.Since(began), want)
				}
			})
		}
	}
}
