package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bounds contains the limits of a cgroup.
type bounds struct{ memory, quota, shares string }

// heldTo returns the limits of two cgroups: the cgroup of a pod's first container, and the cgroup of the pod.
func heldTo(t *testing.T, n *cluster.Node, p *corev1.Pod) (container, pod bounds) {
	t.Helper()
	for pid := range n.ContainerProcesses() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !strings.Contains(string(b), string(p.UID)) {
			continue
		}
		dirs := map[string]string{}
		for line := range strings.Lines(string(b)) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			controllers, path, _ := strings.Cut(rest, ":")
			for c := range strings.SplitSeq(controllers, ",") {
				dirs[c] = filepath.Join("/sys/fs/cgroup", controllers, path)
			}
		}
		read := func(of func(string) string) bounds {
			get := func(controller, v1, v2 string) string {
				dir, file := dirs[controller], v1
				if dir == "" {
					dir, file = dirs[""], v2
				}
				b, err := os.ReadFile(filepath.Join(of(dir), file))
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSuffix(strings.TrimSpace(string(b)), " 100000")
			}
			return bounds{get("memory", "memory.limit_in_bytes", "memory.max"), get("cpu", "cpu.cfs_quota_us", "cpu.max"), get("cpu", "cpu.shares", "cpu.weight")}
		}
		return read(func(dir string) string { return dir }), read(filepath.Dir)
	}
	t.Fatalf("pod %s has no process", p.Name)
	return
}

// sized returns resources in the syntax of manifests and patches.
func sized(cpu, cpuLimit, memory, memoryLimit string) string {
	return fmt.Sprintf(`{"requests":{"cpu":"%s","memory":"%s"},"limits":{"cpu":"%s","memory":"%s"}}`, cpu, memory, cpuLimit, memoryLimit)
}

func resize(t *testing.T, c *cluster.Cluster, ns, name, resources string) {
	t.Helper()
	c.Kubectl(t, "-n", ns, "patch", "pod", name, "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"c","resources":`+resources+`}]}}`)
}

// awaitResized waits until a pod is ready and no resize is pending. The status must contain the resources of the spec.
func awaitResized(t *testing.T, c *cluster.Cluster, ns, name string) *corev1.Pod {
	t.Helper()
	return c.AwaitPod(t, ns, name, "to have its resources", func(p *corev1.Pod) bool {
		s, want := p.Status.ContainerStatuses, p.Spec.Containers[0].Resources
		return cluster.PodReady(p) && len(s) == 1 && s[0].State.Running != nil && s[0].Resources != nil &&
			p.Status.ObservedGeneration == p.Generation &&
			equality.Semantic.DeepEqual(*s[0].Resources, want) && equality.Semantic.DeepEqual(s[0].AllocatedResources, want.Requests) &&
			condition(p, corev1.PodResizePending) == nil && condition(p, corev1.PodResizeInProgress) == nil
	})
}

// TestResize checks that CPU and memory of a running pod are resized in place, also while the link is cut and after a SIGKILL of the
// agent. A resource with the policy RestartContainer must restart the container. Memory in use must not be taken away.
func TestResize(t *testing.T) {
	c, n, ns := join(t)
	restarts := "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]\n"
	c.Apply(t, pod(ns, "a", "", "resources: "+sized("100m", "200m", "32Mi", "64Mi"), "sleep")+
		pod(ns, "r", "", restarts+"resources: "+sized("100m", "200m", "32Mi", "64Mi"), "sleep"))
	before := c.AwaitReady(t, ns, "a", "r")
	expect := func(name string, restarts int32, mebibytes int64, quota, shares string) {
		t.Helper()
		p := awaitResized(t, c, ns, name)
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != restarts || restarts == 0 && s.ContainerID != container(before[name]) {
			t.Errorf("%s has %d restarts, not %d: %+v", name, s.RestartCount, restarts, p.Status)
		}
		want := bounds{fmt.Sprint(mebibytes << 20), quota, shares}
		if own, whole := heldTo(t, n, p); own != want || whole != want {
			t.Errorf("the limits of %s are %+v, those of the pod %+v, not %+v", name, own, whole, want)
		}
	}
	expect("a", 0, 64, "20000", "102")
	resize(t, c, ns, "a", sized("150m", "300m", "48Mi", "96Mi"))
	expect("a", 0, 96, "30000", "153")
	resize(t, c, ns, "a", sized("50m", "100m", "16Mi", "48Mi"))
	expect("a", 0, 48, "10000", "51")
	resize(t, c, ns, "r", sized("150m", "300m", "32Mi", "64Mi"))
	expect("r", 0, 64, "30000", "153")
	resize(t, c, ns, "r", sized("150m", "300m", "32Mi", "80Mi"))
	expect("r", 1, 80, "30000", "153")

	resize(t, c, ns, "a", sized("50m", "100m", "100Ki", "200Ki"))
	p := c.AwaitPod(t, ns, "a", "not to give memory back that it uses", func(p *corev1.Pod) bool {
		progress := condition(p, corev1.PodResizeInProgress)
		return progress != nil && progress.Reason == corev1.PodReasonError &&
			strings.Contains(progress.Message,
				"cannot decrease memory limits: attempting to set container \"c\" memory limit (204800) below current usage") &&
			progress.ObservedGeneration == p.Generation
	})
	if own, whole := heldTo(t, n, p); own != whole || own.memory != fmt.Sprint(48<<20) {
		t.Errorf("the limits are %+v, those of the pod %+v", own, whole)
	}
	if s := p.Status.ContainerStatuses[0]; s.AllocatedResources.Memory().String() != "100Ki" ||
		s.Resources.Limits.Memory().String() != "48Mi" || s.Resources.Requests.Memory().String() != "16Mi" {
		t.Errorf("the status contains %+v, %+v", s.AllocatedResources, s.Resources)
	}

	n.Cut(t) // the agent receives the resize after the link is restored
	resize(t, c, ns, "a", sized("60m", "120m", "16Mi", "56Mi"))
	n.Restore(t)
	expect("a", 0, 56, "12000", "61")
	for i := range 3 { // at any moment of the resize
		resize(t, c, ns, "a", sized(fmt.Sprintf("%dm", 100+100*i), "500m", "16Mi", fmt.Sprintf("%dMi", 60+i)))
		n.Kill()
		n.Start()
		expect("a", 0, int64(60+i), "50000", fmt.Sprint((100+100*i)*1024/1000))
	}
	resize(t, c, ns, "r", sized("150m", "300m", "32Mi", "90Mi"))
	n.Kill()
	n.Start()
	expect("r", 2, 90, "30000", "153")

	for _, want := range []string{"ResizeStarted", "ResizeCompleted", "ResizeError", "resize requires restart"} {
		n.Await("the event "+want, func() bool { return strings.Contains(c.Events(t, ns, ""), want) })
	}
	for _, name := range []string{"a", "r"} {
		c.Kubectl(t, "-n", ns, "delete", "pod", name, "--timeout=120s")
	}
}

// resizeWhole changes the pod-level resources of a pod.
func resizeWhole(t *testing.T, c *cluster.Cluster, ns, name, resources string) {
	t.Helper()
	c.Kubectl(t, "-n", ns, "patch", "pod", name, "--subresource=resize", "-p", `{"spec":{"resources":`+resources+`}}`)
}

// awaitWhole waits until a pod is ready and no resize is pending. The status must contain the pod-level resources of the spec.
func awaitWhole(t *testing.T, c *cluster.Cluster, ns, name string) *corev1.Pod {
	t.Helper()
	return c.AwaitPod(t, ns, name, "to have its resources as a whole", func(p *corev1.Pod) bool {
		return cluster.PodReady(p) && p.Status.ObservedGeneration == p.Generation && p.Status.Resources != nil &&
			equality.Semantic.DeepEqual(*p.Status.Resources, *p.Spec.Resources) &&
			equality.Semantic.DeepEqual(p.Status.AllocatedResources, p.Spec.Resources.Requests) &&
			condition(p, corev1.PodResizePending) == nil && condition(p, corev1.PodResizeInProgress) == nil
	})
}

// TestResizeWhole checks a resize of pod-level resources (KEP-5419). Containers without their own resources must continue to run, also
// after a SIGKILL of the agent. The metrics must count the resizes.
func TestResizeWhole(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, pod(ns, "a", "resources: "+sized("100m", "200m", "32Mi", "64Mi"), "", "sleep"))
	before := c.AwaitReady(t, ns, "a")["a"]
	expect := func(mebibytes int64, quota, shares string) {
		t.Helper()
		p := awaitWhole(t, c, ns, "a")
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != 0 || s.ContainerID != container(before) {
			t.Errorf("the container was restarted: %+v", p.Status)
		}
		if _, whole := heldTo(t, n, p); whole != (bounds{fmt.Sprint(mebibytes << 20), quota, shares}) {
			t.Errorf("the limits of the pod are %+v", whole)
		}
	}
	expect(64, "20000", "102")
	resizeWhole(t, c, ns, "a", sized("150m", "300m", "48Mi", "96Mi"))
	expect(96, "30000", "153")
	resizeWhole(t, c, ns, "a", sized("50m", "100m", "16Mi", "48Mi"))
	expect(48, "10000", "51")
	resizeWhole(t, c, ns, "a", sized("60m", "120m", "16Mi", "56Mi"))
	n.Kill()
	n.Start()
	expect(56, "12000", "61")
	k := kubectl{Cluster: c, ns: ns}
	c.Apply(t, pod(ns, "own", "", "resources: "+sized("100m", "200m", "32Mi", "64Mi"), "sleep"))
	c.AwaitReady(t, ns, "own")
	resize(t, c, ns, "own", sized("150m", "300m", "32Mi", "64Mi"))
	awaitResized(t, c, ns, "own")
	out := k.raw(t, n, "metrics")
	for _, line := range []string{
		`kubelet_container_requested_resizes_total{operation="increase",requirement="requests",resource="cpu"} 1`,
		`kubelet_pod_resize_duration_milliseconds_count{`, `kubelet_pod_in_progress_resizes 0`,
	} {
		if !strings.Contains(out, "\n"+line) {
			t.Errorf("the metrics do not contain %s", line)
		}
	}
	c.Kubectl(t, "-n", ns, "delete", "pods", "--all", "--timeout=120s")
}

// TestResizeWaits checks that a resize that does not fit is deferred, also after a SIGKILL of the agent. The pod with the highest priority
// must be resized first. The API server must reject a resize that exceeds the allocatable of the node.
func TestResizeWaits(t *testing.T) {
	c, n, ns := join(t)
	node := c.AwaitNode(t, n.Name, "to be there", func(*corev1.Node) bool { return true })
	room := node.Status.Allocatable.Cpu().MilliValue()
	cpu := func(milli int64) string { return fmt.Sprintf(`{"requests":{"cpu":"%dm"}}`, milli) }
	c.Apply(t, "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: "+ns+"}\nvalue: 1000\n---\n")
	t.Cleanup(func() { c.Kubectl(t, "delete", "priorityclass", ns, "--wait=false") })
	c.Apply(t, pod(ns, "holds", "", "resources: "+cpu(room/2), "sleep")+pod(ns, "low", "", "resources: "+cpu(10), "sleep")+
		pod(ns, "high", "priorityClassName: "+ns, "resources: "+cpu(10), "sleep"))
	holds := c.AwaitReady(t, ns, "holds", "low", "high")["holds"]
	if out, err := c.TryKubectl("", "-n", ns, "patch", "pod", "low", "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"c","resources":`+cpu(2*room)+`}]}}`); err == nil || !strings.Contains(out+err.Error(), "allocatable") {
		t.Errorf("a resize above the allocatable: %s, %v", out, err)
	}
	for _, name := range []string{"low", "high"} {
		resize(t, c, ns, name, cpu(room*6/10))
	}
	waits := func(name string) {
		t.Helper()
		c.AwaitPod(t, ns, name, "to wait for room", func(p *corev1.Pod) bool {
			s, pending := p.Status.ContainerStatuses[0], condition(p, corev1.PodResizePending)
			return pending != nil && pending.Reason == corev1.PodReasonDeferred &&
				strings.HasPrefix(pending.Message, "Node didn't have enough resource: cpu, requested: ") &&
				pending.ObservedGeneration == p.Generation && s.AllocatedResources.Cpu().Cmp(resource.MustParse("10m")) == 0
		})
	}
	waits("low")
	waits("high")
	n.Kill()
	n.Start()
	waits("low")
	c.Kubectl(t, "-n", ns, "delete", "pod", "holds", "--timeout=120s")
	c.AwaitGone(t, holds)
	awaitResized(t, c, ns, "high")
	waits("low")
	resize(t, c, ns, "low", cpu(10)) // no pod has a deferred resize
	awaitResized(t, c, ns, "low")

	c.Apply(t, pod(ns, "critical", "priorityClassName: system-node-critical", "resources: "+cpu(10), "sleep"))
	c.AwaitReady(t, ns, "critical")
	resize(t, c, ns, "critical", cpu(room*6/10)) // other pods are preempted for it
	awaitResized(t, c, ns, "critical")
	c.AwaitPod(t, ns, "high", "to have made room", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Preempting"
	})
	for _, name := range []string{"low", "high", "critical"} {
		c.Kubectl(t, "-n", ns, "delete", "pod", name, "--timeout=120s")
	}
}
