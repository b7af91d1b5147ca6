package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
)

// TestRuntimeClass checks that a RuntimeClass selects its handler and its overhead, also without a link, after a restart and after a
// reboot. A class whose handler is not configured must cause an event. The pod of this class must run when the handler has been
// configured.
func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	program, calls := n.OCIWrapper("boxed")
	n.SetHandlers(map[string]string{"boxed": program})
	node := n.Join()
	ns := c.Namespace(t)
	var names []string
	for _, h := range node.Status.RuntimeHandlers {
		names = append(names, h.Name)
		if h.Features == nil || h.Features.UserNamespaces == nil || *h.Features.UserNamespaces {
			t.Errorf("handler %q has features %+v", h.Name, h.Features)
		}
	}
	if !slices.Equal(names, []string{"", "boxed"}) {
		t.Errorf("the Node's handlers are %q", names)
	}
	// RuntimeClasses have no namespace, so their names must be unique for this test.
	good, bad := ns+"-good", ns+"-bad"
	for name, spec := range map[string]string{good: "boxed\noverhead: {podFixed: {memory: 16Mi, cpu: 50m}}", bad: "kata"} {
		c.Apply(t, fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\n", name, spec))
		t.Cleanup(func() { c.Kubectl(t, "delete", "runtimeclass", name, "--ignore-not-found") })
	}
	c.Apply(t, pod(ns, "boxed", "runtimeClassName: "+good, "resources: {limits: {memory: 64Mi, cpu: 100m}}", "sleep")+
		pod(ns, "refused", "runtimeClassName: "+bad, "", "sleep")+pod(ns, "plain", "", "", "sleep"))
	before := c.AwaitReady(t, ns, "boxed", "plain")
	ran := calls("create") + calls("run")
	if ran != 1 {
		t.Errorf("the handler ran %d containers", ran)
	}
	if got := podMemory(t, n, string(before["boxed"].UID)); got != fmt.Sprint((64+16)<<20) {
		t.Errorf("the limit of the pod's cgroup is %s bytes, not the limit and the overhead", got)
	}
	n.Await("an event of the refusal", func() bool {
		out := c.Events(t, ns, "involvedObject.name=refused")
		return strings.Contains(out, "FailedCreatePodSandBox") &&
			strings.Contains(out, `no runtime for "kata" is configured: this node has "boxed"`)
	})

	n.Cut(t)
	n.Kill()
	n.SetHandlers(map[string]string{"boxed": program, "kata": program})
	n.Start()
	n.WaitReady("boxed", "plain", "refused") // the agent read the class before the cut
	if got := calls("create") + calls("run"); got != ran+1 {
		t.Errorf("the handler ran %d additional containers", got-ran)
	}
	n.Reboot()
	n.Start()
	n.WaitReady("boxed", "plain", "refused")
	if got := calls("create") + calls("run"); got != ran+3 {
		t.Errorf("after the reboot the handler ran %d additional containers", got-ran-1)
	}
	n.Restore(t)
	c.AwaitPod(t, ns, "boxed", "to be ready", cluster.PodReady)

	c.AwaitNode(t, n.Name, "to have the new handler", func(n *corev1.Node) bool { return len(n.Status.RuntimeHandlers) == 3 })
}

// podMemory returns the memory limit of a pod's cgroup.
func podMemory(t *testing.T, n *cluster.Node, uid string) string {
	t.Helper()
	for _, file := range []string{"memory/" + n.Cgroup + "/kubepods/*/pod" + uid + "/memory.limit_in_bytes", "memory/" + n.Cgroup + "/kubepods/pod" + uid + "/memory.limit_in_bytes",
		n.Cgroup + "/kubepods/*/pod" + uid + "/memory.max", n.Cgroup + "/kubepods/pod" + uid + "/memory.max"} {
		found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("pod %s has no cgroup with a limit of memory", uid)
	return ""
}
