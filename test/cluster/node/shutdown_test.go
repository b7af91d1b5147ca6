package node

import (
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// off is the configuration of a node for at most four pods with a graceful shutdown.
const off = "maxPods: 4\nshutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 30s\n" + machine.Roomy

func disrupted(p *corev1.Pod) bool {
	c := condition(p, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
}

// TestPreemptionAndShutdown checks that a critical pod preempts a best-effort pod, and that a shutdown ends the pods in the order of their
// priority. The agent is killed during the preemption and during the shutdown. After the boot the pods must run again while the API server
// is unreachable.
func TestPreemptionAndShutdown(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Write("kubelet.yaml", n.Kubelet(off))
	n.Join()
	ns, here := c.Namespace(t), "nodeName: "+n.Name
	const asks = "resources: {requests: {cpu: 1m}}"
	stubborn := func(name, container string) string {
		return strings.Replace(pod(ns, name, here, container, "stubborn"), "Seconds: 2", "Seconds: 15", 1)
	}
	c.Apply(t, stubborn("web", asks)+pod(ns, "job", here+"\nrestartPolicy: OnFailure", asks, "sleep")+
		pod(ns, "once", here+"\nrestartPolicy: Never", asks, "sleep"))
	c.Apply(t, stubborn("slow", ""))
	before := c.AwaitReady(t, ns, "web", "job", "once", "slow")
	awaitStubborn(n, ns, "web", "slow")

	critical := pod("kube-system", "critical", "priority: 2000001000\npriorityClassName: system-node-critical", asks, "sleep")
	n.Write("manifests/critical.yaml", strings.TrimSuffix(critical, "---\n"))
	c.AwaitPod(t, ns, "slow", "to make room", func(p *corev1.Pod) bool { return disrupted(p) && p.Status.Phase == corev1.PodRunning })
	n.Kill()
	n.Start()
	gone := c.AwaitPod(t, ns, "slow", "to have made room", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if s := gone.Status; s.Reason != "Preempting" || s.Message != "Preempted in order to admit critical pod" || !disrupted(gone) {
		t.Errorf("the status of the preempted pod is %+v", s)
	}
	c.AwaitReady(t, "kube-system", "critical-"+n.Name)
	unchanged(t, c, map[string]*corev1.Pod{"web": before["web"], "job": before["job"], "once": before["once"]})

	c.Kubectl(t, "-n", ns, "delete", "pod", "slow")
	goesOff(t, c, n, ns)

	n.Cut(t)
	n.Reboot()
	n.Start()
	n.WaitPods("all to run again without the control plane", func(pods map[string]machine.Pod) bool {
		return pods["web"].Ready() && pods["job"].Ready() && pods["critical-"+n.Name].Ready() && !pods["once"].Ready()
	})
	n.Restore(t)
	for _, name := range []string{"web", "job"} {
		p := c.AwaitPod(t, ns, name, "to be ready, and no longer to be disrupted",
			func(p *corev1.Pod) bool { return cluster.PodReady(p) && !disrupted(p) })
		if p.UID != before[name].UID || p.Status.Reason != "" {
			t.Errorf("%s is %+v", name, p.Status)
		}
	}
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
}

// goesOff shuts the node down and kills the agent meanwhile. It checks the status of the ended pods.
func goesOff(t *testing.T, c *cluster.Cluster, n *cluster.Node, ns string) {
	t.Helper()
	first := n.Command(n.Binary(), "shutdown")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	c.AwaitNode(t, n.Name, "to be shutting down", func(node *corev1.Node) bool {
		c := nodeCondition(node, corev1.NodeReady)
		return c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" && c.Message == "node is shutting down"
	})
	n.Kill()
	if err := first.Wait(); err == nil {
		t.Error("islet shutdown succeeded though the agent was killed")
	}
	n.Start()
	n.Islet("shutdown")
	c.Apply(t, pod(ns, "new", "nodeName: "+n.Name, "", "sleep"))
	late := c.AwaitPod(t, ns, "new", "to be refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if late.Status.Reason != "NodeShutdown" || late.Status.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
		t.Errorf("the status of a new pod is %+v", late.Status)
	}
	for name, phase := range map[string]corev1.PodPhase{"web": corev1.PodRunning, "job": corev1.PodRunning, "once": corev1.PodFailed} {
		p := c.AwaitPod(t, ns, name, "to have ended with its machine", func(p *corev1.Pod) bool { return p.Status.Reason == "Terminated" })
		ended := p.Status.ContainerStatuses[0].State.Terminated
		if name == "job" { // the status shows this end as the last one
			ended = p.Status.ContainerStatuses[0].LastTerminationState.Terminated
		}
		if s := p.Status; s.Phase != phase || !disrupted(p) || cluster.PodReady(p) || ended == nil {
			t.Errorf("%s is %+v", name, s)
		}
	}
	if all := n.ContainerProcesses(); len(all) > 0 {
		t.Errorf("processes still run: %v", all)
	}
	at := func(p machine.Pod) time.Time { return p.Status.ContainerStatuses[0].State.Terminated.FinishedAt }
	if pods := n.Pods(); at(pods["critical-"+n.Name]).Before(at(pods["web"])) {
		t.Errorf("web ended at %s, the critical pod at %s", at(pods["web"]), at(pods["critical-"+n.Name]))
	}
}
