package node

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// debug runs kubectl debug with the test's image.
func debug(t *testing.T, c *cluster.Cluster, ns string, args ...string) {
	t.Helper()
	c.Kubectl(t, append([]string{"-n", ns, "debug", "--image=" + machine.Image, "--image-pull-policy=Never"}, args...)...)
}

// ephemeral returns the status of an ephemeral container, or nil if the status is missing.
func ephemeral(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for i, s := range p.Status.EphemeralContainerStatuses {
		if s.Name == name {
			return &p.Status.EphemeralContainerStatuses[i]
		}
	}
	return nil
}

func awaitEphemeral(t *testing.T, c *cluster.Cluster, ns, pod, name, what string, ok func(*corev1.ContainerStatus) bool) *corev1.Pod {
	t.Helper()
	return c.AwaitPod(t, ns, pod, name+" "+what, func(p *corev1.Pod) bool {
		s := ephemeral(p, name)
		return s != nil && ok(s)
	})
}

func runs(s *corev1.ContainerStatus) bool { return s.State.Running != nil }

// TestDebug checks that kubectl debug works on a running pod, on the processes of its container, and on a pod in CrashLoopBackOff. The
// ephemeral containers must survive a SIGKILL of the agent.
func TestDebug(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, pod(ns, "runs", "", "", "serve", ":8080")+pod(ns, "crashes", "", "", "exit", "1", "1s"))
	c.AwaitReady(t, ns, "runs")

	debug(t, c, ns, "runs", "--container=shell", "--target=c", "--", "/podtool", "sleep")
	debug(t, c, ns, "crashes", "--container=shell", "--", "/podtool", "sleep")
	debug(t, c, ns, "crashes", "--container=beside", "--target=c", "--", "/podtool", "sleep")
	p := awaitEphemeral(t, c, ns, "runs", "shell", "to run", runs)
	if p.Status.ObservedGeneration != p.Generation || p.Generation < 2 || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("generation %d of %d, status %+v", p.Status.ObservedGeneration, p.Generation, p.Status)
	}
	awaitEphemeral(t, c, ns, "crashes", "shell", "to run", runs)
	awaitEphemeral(t, c, ns, "crashes", "beside", "to have started, and to have ended with its target",
		func(s *corev1.ContainerStatus) bool { return s.State.Terminated != nil })
	if out := c.Kubectl(t, "-n", ns, "exec", "runs", "-c", "shell", "--", "/podtool", "cat", "/proc/1/cmdline"); !strings.Contains(out,
		"serve") {
		t.Errorf("the first process in its PID namespace is %q", out)
	}
	session := kubectl{Cluster: c, ns: ns}.start(t, nil, "debug", "-i", "-q", "--image="+machine.Image, "--image-pull-policy=Never", "runs", "--container=cat", "--", "/podtool", "cat")
	session.say(t, "to and fro\n", "to and fro\n")
	session.in.Close()
	session.end(t, true)
	debug(t, c, ns, "runs", "--container=says", "--", "/podtool", "cat", "/etc/hostname")
	before := awaitEphemeral(t, c, ns, "runs", "says", "to have ended",
		func(s *corev1.ContainerStatus) bool { return s.State.Terminated != nil })

	n.Kill()
	n.Start()
	n.WaitPods("the node to know its pods", func(pods map[string]machine.Pod) bool { return pods["runs"].Ready() })
	for _, x := range []struct {
		want string
		args []string
	}{
		{"runs\n", []string{"logs", ns + "/runs", "-c", "says"}},
		{"runs\n", []string{"exec", ns + "/runs", "-c", "shell", "--", "/podtool", "cat", "/etc/hostname"}},
		{"Ephemeral Containers:\n  shell:", []string{"describe", ns + "/runs"}},
		{"1/1", []string{"pods", "-n", ns}},
	} {
		if out := n.Islet(x.args...); !strings.Contains(out, x.want) {
			t.Errorf("islet %s: %q is not in\n%s", strings.Join(x.args, " "), x.want, out)
		}
	}
	// After a further change, the node processes the pod again. Ended ephemeral containers must not restart.
	debug(t, c, ns, "runs", "--container=late", "--", "/podtool", "sleep")
	after := awaitEphemeral(t, c, ns, "runs", "late", "to run", runs)
	for _, name := range []string{"shell", "cat", "says"} {
		if a, b := ephemeral(before, name), ephemeral(after, name); b == nil || a.ContainerID != b.ContainerID || b.RestartCount != 0 {
			t.Errorf("%s was %+v, is %+v", name, a, b)
		}
	}
	if !cluster.PodReady(after) || container(after) != container(before) {
		t.Errorf("the pod is %+v", after.Status)
	}
	for _, name := range []string{"runs", "crashes"} {
		c.Kubectl(t, "-n", ns, "delete", "pod", name, "--timeout=120s")
	}
}

// TestLife checks features of a pod's lifecycle through the API server: a deadline that is set on a running pod, hooks, rules that restart
// all containers, and the observed generation of conditions.
func TestLife(t *testing.T) {
	c, n, ns := join(t)
	rules := `restartPolicy: Never
restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
volumeMounts: [{name: v, mountPath: /v}]`
	c.Apply(t, pod(ns, "limited", "", "", "sleep")+
		pod(ns, "hooked", "", "lifecycle: {postStart: {exec: {command: [/podtool, exit, \"3\"]}}}", "sleep")+
		pod(ns, "all", "volumes: [{name: v, emptyDir: {}}]\nrestartPolicy: Never", rules, "once", "/v/once", "42"))
	c.AwaitReady(t, ns, "limited")
	c.Kubectl(t, "-n", ns, "patch", "pod", "limited", "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
	p := c.AwaitPod(t, ns, "limited", "to be over", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if p.Status.Reason != "DeadlineExceeded" || p.Generation != 2 || p.Status.ObservedGeneration != 2 {
		t.Errorf("generation %d, status %+v", p.Generation, p.Status)
	}
	for _, x := range p.Status.Conditions {
		if x.ObservedGeneration != 2 {
			t.Errorf("%s is of generation %d", x.Type, x.ObservedGeneration)
		}
	}
	p = c.AwaitPod(t, ns, "all", "to have restarted", func(p *corev1.Pod) bool {
		return cluster.PodReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 42 {
		t.Errorf("the last termination state is %+v", last)
	}
	if x := condition(p, corev1.AllContainersRestarting); x == nil || x.Status != corev1.ConditionFalse {
		t.Errorf("conditions are %+v", p.Status.Conditions)
	}
	c.AwaitPod(t, ns, "hooked", "to fail again and again", func(p *corev1.Pod) bool {
		w := p.Status.ContainerStatuses
		return len(w) == 1 && w[0].State.Waiting != nil && w[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	n.Await("its event", func() bool {
		out := c.Events(t, ns, "involvedObject.name=hooked")
		return strings.Contains(out, "FailedPostStartHook") && strings.Contains(out, "PostStartHook failed")
	})
}
