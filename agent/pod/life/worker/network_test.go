package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
)

// TestNoNetworkYet checks that only pods on the host's network start before the network is ready. The other pods report the reason and
// start when the network is ready.
func TestNoNetworkYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1"))
		var there atomic.Bool
		n.network = func() error {
			if there.Load() {
				return nil
			}
			return errors.New("container runtime network not ready: cni plugin not initialized")
		}
		n.start(t)
		defer func() { n.stop() }()
		host := pod("host", "")
		host.Spec.HostNetwork = true
		n.setWish("host", Wanted{Pod: host})
		n.setWish("a", Wanted{Pod: pod("a", "")})
		checkRunning(t, n, "host/c#0")
		n.events.checkEvents(t, "a",
			"Warning NetworkNotReady a: network is not ready: container runtime network not ready: cni plugin not initialized")
		if f := n.set.Input("a").Failed[plan.Key{Op: plan.RunSandbox}]; f.Reason != plan.NetworkNotReady {
			t.Errorf("reason %q", f.Reason)
		}
		time.Sleep(10 * time.Minute)
		there.Store(true)
		began := time.Now()
		n.set.Retry()
		checkRunning(t, n, "a/c#0", "host/c#0")
		if took := time.Since(began); took > 0 {
			t.Errorf("started after %v", took)
		}
	})
}

// arrivingNetwork is a hook that gives the node an address and a DNS server while it prepares a pod.
type arrivingNetwork struct{ node *node }

func (arrivingNetwork) Name() string { return "network" }

func (a arrivingNetwork) Prepare(context.Context, *v1.Pod) error {
	a.node.facts.Store(&translate.Node{IPs: []string{"192.0.2.7"}, Resolv: translate.DNS{Servers: []string{"192.0.2.53"}}})
	return nil
}

// TestNoAddressYet checks that a container which asks for the node's address starts as soon as there is one. If the machine gets its
// address and DNS servers while the pod is being prepared, the pod uses them.
func TestNoAddressYet(t *testing.T) {
	for _, during := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, newMachine("app:1"))
			network := arrivingNetwork{n}
			if during {
				n.hooks = hook.Chain{network}
			}
			n.start(t)
			defer func() { n.stop() }()
			p := pod("a", "")
			p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "HOST_IP", ValueFrom: &v1.EnvVarSource{
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"},
			}}}
			n.setWish("a", Wanted{Pod: p})
			servers := 1
			if !during {
				servers = 0
				checkRunning(t, n)
				if f := n.set.Input("a").Failed[plan.Key{Container: "c", Op: plan.StartContainer}]; f.Reason != plan.CreateContainerConfigError {
					t.Errorf("reason %q", f.Reason)
				}
				if err := network.Prepare(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				n.set.Retry()
			}
			began := time.Now()
			checkRunning(t, n, "a/c#0")
			if took := time.Since(began); took > 0 {
				t.Errorf("started after %v", took)
			}
			if got := n.ran.Load().Resolv.Servers; len(got) != servers {
				t.Errorf("the sandbox has the servers %q", got)
			}
		})
	}
}

// TestNetworkIsAnotherOne checks that a pod with a sandbox in a former network gets a new sandbox once. The pod waits until the new network
// is ready.
func TestNetworkIsAnotherOne(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		for _, polite := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, polite), func(t *testing.T) { replaceNetwork(t, policy, polite) })
		}
	}
}

func replaceNetwork(t *testing.T, policy v1.RestartPolicy, polite bool) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newMachine("app:1"))
		n.polite = polite
		var former atomic.Value // the former sandbox
		former.Store("")
		var closed atomic.Bool
		n.stale = func(id string) bool { return id == former.Load() }
		n.network = func() error {
			if closed.Load() {
				return errors.New("pods still leave the built-in network")
			}
			return nil
		}
		n.start(t)
		defer func() { n.stop() }()
		n.setWish("a", Wanted{Pod: otherPod(policy, "app:1")})
		n.setWish("b", Wanted{Pod: pod("b", "")})
		checkRunning(t, n, "a/c#0", "b/c#0")
		sb, _ := n.set.Input("a").Observed.Sandbox()
		time.Sleep(time.Minute)
		closed.Store(true)
		former.Store(sb.ID)
		n.set.Retry()
		time.Sleep(time.Minute) // the grace period passes
		checkRunning(t, n, "b/c#0")
		if now, _ := n.set.Input("a").Observed.Sandbox(); now.ID != sb.ID || now.Ready {
			t.Errorf("the sandbox is %+v", now)
		}
		closed.Store(false)
		n.set.Retry()
		time.Sleep(time.Second)
		checkRunning(t, n, "a/c#1", "b/c#0")
		if now, _ := n.set.Input("a").Observed.Sandbox(); now.ID == sb.ID || !now.Ready || now.Attempt != sb.Attempt+1 {
			t.Errorf("the sandbox is %+v", now)
		}
	})
}

// TestSandboxRetry checks that a failed sandbox is retried after at most 10 s, and at once when the network may be ready again. Other
// failures of the same step keep their longer back-off.
func TestSandboxRetry(t *testing.T) {
	for reason, most := range map[string]time.Duration{
		plan.FailedCreatePodSandBox: 10 * time.Second, plan.NetworkNotReady: 10 * time.Second, plan.FailedMount: time.Minute,
	} {
		f := newFailure(20, plan.Action{Op: plan.RunSandbox}, newProblem(reason, "why"))
		if wait := f.Retry.Sub(f.At); wait != most {
			t.Errorf("%s: %v", reason, wait)
		}
		w := worker{life: newLife()}
		w.life.failed[plan.Key{Op: plan.RunSandbox}] = f
		w.forgetExternal()
		if kept := len(w.life.failed) == 1; kept != (reason == plan.FailedCreatePodSandBox) {
			t.Errorf("%s: after a change of an object the back-off is kept: %v", reason, kept)
		}
		w.forgetSandbox()
		if len(w.life.failed) != 0 {
			t.Errorf("%s: waits although the network may be back", reason)
		}
	}
}
