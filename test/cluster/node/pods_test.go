package node

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPod checks that a pod of the API server runs with an address of the node's podCIDR. Its status and events must be visible.
func TestPod(t *testing.T) {
	c, n, ns := join(t)
	node := c.AwaitNode(t, n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
	p := pods(t, c, ns, 1)["p0"]
	if ip, err := netip.ParseAddr(p.Status.PodIP); err != nil || !netip.MustParsePrefix(node.Spec.PodCIDR).Contains(ip) {
		t.Errorf("the address of the pod is %q, the node's podCIDR %s", p.Status.PodIP, node.Spec.PodCIDR)
	}
	s := p.Status
	if s.Phase != corev1.PodRunning || s.HostIP != n.Addr || s.StartTime == nil || s.QOSClass != corev1.PodQOSBestEffort ||
		s.ContainerStatuses[0].ImageID == "" {
		t.Errorf("status is %+v", s)
	}
	n.Await("its events", func() bool {
		out := c.Events(t, ns, "involvedObject.name=p0")
		for _, reason := range []string{"Scheduled", "Pulled", "Created", "Started"} {
			if !strings.Contains(out, reason) {
				return false
			}
		}
		return true
	})

	c.Apply(t, pod(ns, "ends", "restartPolicy: Never", "", "exit", "3"))
	ended := c.AwaitPod(t, ns, "ends", "to fail", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if end := ended.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 || end.Reason != "Error" {
		t.Errorf("the termination state is %+v", end)
	}
	c.Apply(t, strings.Replace(pod(ns, "lost", "", "", "sleep"), machine.Image, "localhost/none:none", 1))
	c.AwaitPod(t, ns, "lost", "to miss its image", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImageNeverPull"
	})
}

// TestReadiness checks when the endpoint of a Service becomes ready: the pod's probe must succeed and its readiness gate must be true.
func TestReadiness(t *testing.T) {
	c, n, ns := join(t)
	probe := "readinessProbe: {httpGet: {path: /if/ready, port: 8080}, timeoutSeconds: 60, periodSeconds: 1}"
	c.Apply(t, pod(ns, "probed", "readinessGates: [{conditionType: example.com/open}]", probe, "serve", ":8080"))
	c.Kubectl(t, "-n", ns, "label", "pod", "probed", "app=probed")
	c.Kubectl(t, "-n", ns, "expose", "pod", "probed", "--port=80", "--target-port=8080")
	endpoint := func(ready string) {
		t.Helper()
		n.Await("the endpoint to be ready: "+ready, func() bool {
			return c.Kubectl(t, "-n", ns, "get", "endpointslices", "-l", "kubernetes.io/service-name=probed", "-o",
				"jsonpath={.items[*].endpoints[*].conditions.ready}") == ready
		})
	}
	unready := func(reason string) {
		t.Helper()
		c.AwaitPod(t, ns, "probed", "not to be ready: "+reason, func(p *corev1.Pod) bool {
			c := condition(p, corev1.PodReady)
			return c != nil && c.Status == corev1.ConditionFalse && c.Reason == reason
		})
	}
	endpoint("false")
	unready("ContainersNotReady")
	c.Kubectl(t, "-n", ns, "exec", "probed", "--", "/podtool", "write", "/ready", "x")
	unready("ReadinessGatesNotReady")
	c.Kubectl(t, "-n", ns, "patch", "pod", "probed", "--subresource=status", "-p",
		`{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}`)
	c.AwaitReady(t, ns, "probed")
	endpoint("true")
}

// TestReadinessToTheEnd checks that the readiness probe of a deleted pod continues during the pod's grace period. If the probe fails, the
// API must show an unready pod.
func TestReadinessToTheEnd(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, pod(ns, "p", "", "readinessProbe: {exec: {command: [/podtool, cat, /ready]}, timeoutSeconds: 60, periodSeconds: 1}\n"+
		"lifecycle: {preStop: {exec: {command: [/podtool, sleep]}}}", "sleep"))
	n.Await("the container to run", func() bool {
		_, code := n.Try("exec", "-n", ns, "p", "--", "/podtool", "write", "/ready", "x")
		return code == 0
	})
	c.AwaitReady(t, ns, "p")
	c.Kubectl(t, "-n", ns, "delete", "pod", "p", "--grace-period=60", "--wait=false")
	n.Await("the container to be stopped", func() bool {
		return c.Events(t, ns, "reason=Killing") != ""
	})
	inside(n, ns, "p", "rm", "/ready")
	c.AwaitPod(t, ns, "p", "not to be ready during its grace period", func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && !cluster.PodReady(p) && len(p.Status.ContainerStatuses) == 1 &&
			p.Status.ContainerStatuses[0].State.Running != nil
	})
	c.Kubectl(t, "-n", ns, "delete", "pod", "p", "--force", "--grace-period=0")
}

// TestAdmission checks a pod that is bound to the node but does not fit. The pod must fail with the same reason as in a kubelet, and must
// not run.
func TestAdmission(t *testing.T) {
	c, n, ns := join(t)
	here := "nodeName: " + n.Name
	port := "ports: [{containerPort: 80, hostPort: 8080}]"
	c.Apply(t, pod(ns, "first", here, port, "sleep"))
	c.AwaitReady(t, ns, "first")
	c.Kubectl(t, "patch", "node", n.Name, "--subresource=status", "--type=merge", "-p", `{"status":{"capacity":{"example.com/foo":"1"}}}`)
	c.Kubectl(t, "wait", "node", n.Name, "--for=jsonpath={.status.allocatable.example\\.com/foo}=1", "--timeout=60s") // the agent has seen it
	for _, x := range []struct{ reason, spec, container string }{
		{"OutOfexample.com/foo", "", "resources: {limits: {example.com/foo: 2}}"},
		{"NodePorts", "", port},
		{"NodeAffinity", "nodeSelector: {no: such-node}", ""},
		{"OutOfcpu", "", `resources: {requests: {cpu: "1000"}}`},
		{"OutOfmemory", "", "resources: {requests: {memory: 1Pi}}"},
		{"PodOSNotSupported", "os: {name: windows}", ""},
	} {
		name := strings.ReplaceAll(strings.ToLower(x.reason), "/", "-")
		c.Apply(t, pod(ns, name, here+"\n"+x.spec, x.container, "sleep"))
		p := c.AwaitPod(t, ns, name, "to fail", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if p.Status.Reason != x.reason || p.Status.Message == "" {
			t.Errorf("%s: the reason is %q, the message %q", x.reason, p.Status.Reason, p.Status.Message)
		}
		if out := c.Kubectl(t, "-n", ns, "delete", "pod", name, "--timeout=60s"); !strings.Contains(out, "deleted") {
			t.Error(out)
		}
	}
	n.WaitReady("first")
	if all := n.ContainerProcesses(); len(all) != 1 {
		t.Errorf("processes are %v", all)
	}
}

// TestTooLargePod checks pods that the API server accepts and that need too much memory once they are decoded. Such a pod must fail, and
// the node must follow the other pods: from a watch, and from a list after a restart of the agent.
func TestTooLargePod(t *testing.T) {
	c, n, ns := join(t)
	create := func(name string, enlarge func(p *corev1.Pod)) {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: n.Name,
			Containers: []corev1.Container{{Name: "c", Image: machine.Image, Args: []string{"sleep"}}}}}
		enlarge(p)
		if _, err := c.Admin().CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	affinity := func(p *corev1.Pod) {
		required := &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 270_000)}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	fails := func(name string) {
		t.Helper()
		p := c.AwaitPod(t, ns, name, "to fail", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if p.Status.Reason != "PodTooLarge" || p.Status.Message == "" {
			t.Errorf("%s: the reason is %q, the message %q", name, p.Status.Reason, p.Status.Message)
		}
	}
	create("watched", affinity)
	fails("watched")
	c.Apply(t, pod(ns, "next", "nodeName: "+n.Name, "", "sleep"))
	c.AwaitReady(t, ns, "next")
	n.Stop()
	create("listed", affinity)
	c.Apply(t, pod(ns, "last", "nodeName: "+n.Name, "", "sleep"))
	n.Start()
	fails("listed")
	c.AwaitReady(t, ns, "next", "last")
	for _, name := range []string{"watched", "listed"} {
		if out := c.Kubectl(t, "-n", ns, "delete", "pod", name, "--timeout=60s"); !strings.Contains(out, "deleted") {
			t.Error(out)
		}
	}
}

// awaitStubborn waits until pods that run podtool stubborn ignore SIGTERM. A container is ready before its program ignores the signal.
func awaitStubborn(n *cluster.Node, ns string, names ...string) {
	for _, name := range names {
		n.Await(name+" to ignore SIGTERM", func() bool {
			out, _ := n.Try("logs", "-n", ns, name)
			return strings.Contains(out, "ignoring SIGTERM")
		})
	}
}

// TestDeletion checks that a deleted pod gets its grace period. The API object must exist until the pod has ended on the node. A forced
// deletion must also end the pod.
func TestDeletion(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, pod(ns, "polite", "", "", "sleep")+pod(ns, "stubborn", "", "", "stubborn")+pod(ns, "forced", "", "", "stubborn"))
	all := c.AwaitReady(t, ns, "polite", "stubborn", "forced")
	awaitStubborn(n, ns, "stubborn")
	remove := func(name string, args ...string) time.Duration {
		began := time.Now()
		c.Kubectl(t, append([]string{"-n", ns, "delete", "pod", name}, args...)...) // it waits for the end of the deletion
		return time.Since(began)
	}
	if took := remove("polite", "--grace-period=60"); took > 50*time.Second {
		t.Errorf("a pod that exits at SIGTERM ended after %v", took)
	}
	if took := remove("stubborn", "--grace-period=3"); took < 3*time.Second {
		t.Errorf("a grace period of 3 s lasted %v", took)
	}
	remove("forced", "--force", "--grace-period=0")
	for _, p := range all {
		c.AwaitGone(t, p)
	}
	n.WaitReady() // no pod is left on the node
	if left := n.ContainerProcesses(); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}

	// A StatefulSet creates a pod with the same name again.
	old := pods(t, c, ns, 1)["p0"]
	c.Kubectl(t, "-n", ns, "delete", "pod", "p0")
	if again := pods(t, c, ns, 1)["p0"]; again.UID == old.UID || container(again) == container(old) {
		t.Error("the new pod has the UID or the container of the deleted one")
	}
}

// TestMirrorPods checks that the API shows static pods with their status. A deletion of the mirror pod must not end the static pod.
func TestMirrorPods(t *testing.T) {
	c, n, _ := join(t)
	ns := "default"
	n.Write("manifests/static.yaml", pod(ns, "static", "", "", "sleep"))
	name := "static-" + n.Name
	mirror := c.AwaitPod(t, ns, name, "to be ready", cluster.PodReady)
	if mirror.Annotations["kubernetes.io/config.mirror"] == "" || mirror.Annotations["kubernetes.io/config.source"] != "file" ||
		len(mirror.OwnerReferences) != 1 || mirror.OwnerReferences[0].Kind != "Node" {
		t.Errorf("metadata is %+v", mirror.ObjectMeta)
	}
	c.Kubectl(t, "-n", ns, "delete", "pod", name, "--wait=false")
	again := c.AwaitPod(t, ns, name, "to come back", func(p *corev1.Pod) bool { return p.UID != mirror.UID && cluster.PodReady(p) })
	if container(again) != container(mirror) {
		t.Error("the deletion of the mirror pod restarted the static pod")
	}
	n.Write("manifests/static.yaml", pod(ns, "static", "", "", "count", "1s"))
	c.AwaitPod(t, ns, name, "to follow the file", func(p *corev1.Pod) bool {
		return p.Spec.Containers[0].Args[0] == "count" &&
			cluster.PodReady(p)
	})
	n.Remove("manifests/static.yaml")
	last, err := c.Admin().CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		c.AwaitGone(t, last)
	}
}
