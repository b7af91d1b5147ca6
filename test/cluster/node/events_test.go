package node

import (
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// happened returns the kubelet's events of an object. The keys have the form "REASON: MESSAGE". The values are the counts.
func happened(t *testing.T, c *cluster.Cluster, ns string, uid types.UID) map[string]int32 {
	t.Helper()
	list, err := c.Admin().CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(uid)})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int32{}
	for _, e := range list.Items {
		if e.Source.Component == "kubelet" {
			count[e.Reason+": "+e.Message] += e.Count
		}
	}
	return count
}

// describes waits until the output of kubectl describe contains all given texts.
func describes(t *testing.T, c *cluster.Cluster, n *cluster.Node, what []string, args ...string) {
	t.Helper()
	n.Await("kubectl describe "+strings.Join(args, " ")+" to show "+strings.Join(what, ", "), func() bool {
		out := c.Kubectl(t, append([]string{"describe"}, args...)...)
		for _, w := range what {
			if !strings.Contains(out, w) {
				return false
			}
		}
		return true
	})
}

// TestEvents checks that events of pods and of the node have the messages of a kubelet. The pods are from the API server and from the
// manifest directory.
func TestEvents(t *testing.T) {
	c, n, ns := join(t)
	n.Write("manifests/own.yaml", pod(ns, "own", "", "", "sleep"))
	n.Write("manifests/broken.yaml", pod(ns, "broken", "", "", "exit", "1"))
	c.Apply(t, pod(ns, "calm", "", "", "sleep")+pod(ns, "crashes", "", "", "exit", "1")+
		pod(ns, "bare", "volumes: [{name: v, configMap: {name: nowhere}}]", "", "sleep")+
		strings.Replace(pod(ns, "lost", "", "", "sleep"), machine.Image, "localhost/none:none", 1)+
		pod(ns, "elsewhere", "nodeName: "+n.Name+"\nnodeSelector: {planet: mars}", "", "sleep"))
	life := []string{`Container image "` + machine.Image + `" already present on machine`, "Container created", "Container started"}
	own, broken := "own-"+n.Name, "broken-"+n.Name
	crash := []string{"Back-off restarting failed container c in pod "}
	describes(t, c, n, life, "-n", ns, "pod", "calm")
	describes(t, c, n, life, "-n", ns, "pod", own)
	describes(t, c, n, append(crash, life...), "-n", ns, "pod", "crashes")
	describes(t, c, n, append(crash, life...), "-n", ns, "pod", broken)
	describes(t, c, n, []string{"FailedMount", `MountVolume.SetUp failed for volume "v" : configmap "nowhere" not found`}, "-n", ns, "pod", "bare")
	describes(t, c, n, []string{"ErrImageNeverPull", `Container image "localhost/none:none" is not present with pull policy of Never`, "Error: ErrImageNeverPull"}, "-n", ns, "pod", "lost")
	describes(t, c, n, []string{"NodeAffinity"}, "-n", ns, "pod", "elsewhere")
	describes(t, c, n, []string{"Starting", "NodeHasSufficientMemory", "NodeReady"}, "node", n.Name)
	for _, name := range []string{own, "calm"} {
		if out := n.Islet("describe", "pod", "-n", ns, name); !strings.Contains(out, "Container started") {
			t.Errorf("islet describe does not show the events:\n%s", out)
		}
	}

	// A repeated event increases its count and creates no further object.
	uid := c.AwaitPod(t, ns, "crashes", "to be there", func(*corev1.Pod) bool { return true }).UID
	n.Await("the back-off to be counted", func() bool {
		all := happened(t, c, ns, uid)
		return len(all) == 4 && all["BackOff: "+crash[0]+"crashes_"+ns+"("+string(uid)+")"] > 1 && all["Started: Container started"] > 2
	})

	calm := c.AwaitPod(t, ns, "calm", "to be there", func(*corev1.Pod) bool { return true }).UID
	hash := c.AwaitPod(t, ns, own, "to be there", func(*corev1.Pod) bool { return true }).Annotations["kubernetes.io/config.hash"]
	c.Kubectl(t, "-n", ns, "delete", "pod", "calm")
	n.Remove("manifests/own.yaml")
	for _, uid := range []types.UID{calm, types.UID(hash)} {
		n.Await("the event of the end", func() bool { return happened(t, c, ns, uid)["Killing: Stopping container c"] == 1 })
	}
	c.Kubectl(t, "cordon", n.Name)
	describes(t, c, n, []string{"NodeNotSchedulable"}, "node", n.Name)
	c.Kubectl(t, "uncordon", n.Name)
	describes(t, c, n, []string{"NodeSchedulable"}, "node", n.Name)
	n.Reboot()
	n.Start()
	describes(t, c, n, []string{"SandboxChanged"}, "-n", ns, "pod", "crashes")
}

// TestEventRate checks that the node sends events within the limits eventRecordQPS and eventBurst. It must send further events later.
func TestEventRate(t *testing.T) {
	c := start(t)
	proxy := c.Proxy(t)
	n := c.Node(t, proxy.Addr)
	n.Join("--event-qps=2", "--event-burst=4")
	ns := c.Namespace(t)
	proxy.Requests()
	began := time.Now()
	told := 0
	sent := func() int {
		by, _ := proxy.Requests()
		for request, n := range by {
			if strings.Contains(request, "/events") {
				told += n
			}
		}
		return told
	}
	all := pods(t, c, ns, 5)
	n.Await("all events to be sent", func() bool {
		n := sent() // before the time is measured
		if took := time.Since(began); n > 4+2*int(took/time.Second+1) {
			t.Fatalf("%d events were sent after %v", n, took)
		}
		for _, p := range all {
			if len(happened(t, c, ns, p.UID)) < 3 {
				return false
			}
		}
		return true
	})
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("%d events were sent in %v", told, took)
	}
}
