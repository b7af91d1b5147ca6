package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// greedy is a Deployment with one pod that needs more of a resource than the node has.
const greedy = `apiVersion: apps/v1
kind: Deployment
metadata: {name: greedy, namespace: %s}
spec:
  selector: {matchLabels: {app: greedy}}
  template:
    metadata: {labels: {app: greedy}}
    spec:
      terminationGracePeriodSeconds: 1
      volumes: [{name: v, emptyDir: {}}]
      containers:
      - {name: c, image: %s, imagePullPolicy: Never, args: [%s], volumeMounts: [{name: v, mountPath: /v}]}
---
`

// transition is the time for which the node keeps its pressure condition after the end of the pressure.
const transition = 15 * time.Second

// TestEvictsInCluster checks that a node under memory or disk pressure evicts the pod that causes the pressure. The node must get the
// taint of its condition. It must get no pods until the transition period has passed.
func TestEvictsInCluster(t *testing.T) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d", &kib); err != nil {
		t.Fatal(err)
	}
	for _, p := range []pressure{
		{"memory", fmt.Sprintf("systemReserved: {memory: %dKi}\nevictionHard: {allocatableMemory.available: 100Mi}\n", kib-400<<10), "eat, '140'",
			corev1.NodeMemoryPressure, "KubeletHasInsufficientMemory", corev1.TaintNodeMemoryPressure, "The node was low on resource: memory. "},
		{"disk", "evictionHard: {nodefs.available: 40%}\n", "fill, /v/file, '50'",
			corev1.NodeDiskPressure, "KubeletHasDiskPressure", corev1.TaintNodeDiskPressure, "The node was low on resource: ephemeral-storage. "},
	} {
		t.Run(p.of, p.test)
	}
}

// A pressure is a kind of resource pressure.
type pressure struct {
	of        string
	config    string // additional configuration with a threshold that is soon met
	greedy    string // arguments of the container that causes the pressure
	condition corev1.NodeConditionType
	reason    string
	taint     string
	message   string // start of the evicted pod's message
}

func (p pressure) test(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	configureDisk(n, "imageGCHighThresholdPercent: 100\nevictionPressureTransitionPeriod: "+transition.String()+"\n"+p.config)
	n.Run("sh", "-c", fmt.Sprintf(
		"mkdir %[1]s/kubelet; truncate -s 100M %[1]s/img; mkfs.ext4 -q %[1]s/img; mount -o loop %[1]s/img %[1]s/kubelet", n.Disk))
	n.Join()
	ns := c.Namespace(t)
	c.Apply(t, pod(ns, "modest", "", "resources: {requests: {memory: 200Mi}}", "eat", "170"))
	modest := c.AwaitReady(t, ns, "modest")
	c.Apply(t, fmt.Sprintf(greedy, ns, machine.Image, p.greedy))

	under := c.AwaitNode(t, n.Name, "to be under pressure, and tainted",
		func(n *corev1.Node) bool {
			return nodeCondition(n, p.condition).Status == corev1.ConditionTrue && p.taints(n)
		})
	if got := nodeCondition(under, p.condition); got.Reason != p.reason {
		t.Errorf("the condition is %+v", got)
	}
	var ended, waits *corev1.Pod
	n.Await("a pod to be evicted, and one to wait for a node", func() bool {
		ended, waits = p.look(t, c, ns)
		return ended != nil && waits != nil
	})
	if disruption := condition(ended, corev1.DisruptionTarget); disruption == nil || disruption.Status != corev1.ConditionTrue ||
		disruption.Reason != corev1.PodReasonTerminationByKubelet {
		t.Errorf("the status of the evicted pod is %+v", ended.Status)
	}
	describes(t, c, n, []string{"Evicted", p.message}, "-n", ns, "pod", ended.Name)
	c.Apply(t, pod(ns, "late", "", "", "sleep")) // this pod has the lowest QoS class, like greedy
	c.Kubectl(t, "-n", ns, "delete", "deployment", "greedy", "--wait=false")
	relieved := c.AwaitNode(t, n.Name, "to be without pressure, and without a taint",
		func(n *corev1.Node) bool {
			return nodeCondition(n, p.condition).Status == corev1.ConditionFalse && !p.taints(n)
		})
	if lasted := nodeCondition(relieved, p.condition).LastTransitionTime.Sub(
		nodeCondition(under, p.condition).LastTransitionTime.Time); lasted < transition-time.Second { // the times have a resolution of one second
		t.Errorf("the pressure was over after %v", lasted)
	}
	c.AwaitReady(t, ns, "late")
	unchanged(t, c, modest)
}

// look returns the evicted pod and a pod that is unschedulable because of the taint. It ignores pods that were scheduled before the node
// had the taint. The node has rejected these pods.
func (p pressure) look(t *testing.T, c *cluster.Cluster, ns string) (ended, waits *corev1.Pod) {
	t.Helper()
	list, err := c.Admin().CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=greedy"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		scheduled := condition(pod, corev1.PodScheduled)
		switch {
		case pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted" && strings.HasPrefix(pod.Status.Message, p.message):
			ended = pod
		case pod.Status.Phase == corev1.PodPending && scheduled != nil && scheduled.Reason == corev1.PodReasonUnschedulable &&
			strings.Contains(scheduled.Message, "taint"):
			waits = pod
		}
	}
	return ended, waits
}

func (p pressure) taints(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == p.taint &&
			t.Effect == corev1.TaintEffectNoSchedule
	})
}
