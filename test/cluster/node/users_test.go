package node

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestUsers checks a pod of the API server with hostUsers: false. The pod's runtime handler supports user namespaces. The pod must read
// its objects and its token, and work with kubectl exec and debug. It must keep its user namespace after a cut link, a SIGKILL and a
// reboot. A handler without this support must cause an event. The Node must list the features of its handlers.
func TestUsers(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.SetHandlers(map[string]string{"new": machine.Runc(t)})
	node, ns := n.Join(), c.Namespace(t)
	own := false
	for _, h := range node.Status.RuntimeHandlers {
		can := h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
		own = own || h.Name == "" && can
		if h.Name == "new" && !can {
			t.Errorf("handler %q has features %+v", h.Name, h.Features)
		}
	}
	class := ns + "-new"
	c.Apply(t, fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: new\n", class))
	t.Cleanup(func() { c.Kubectl(t, "delete", "runtimeclass", class, "--ignore-not-found") })
	mapped := "hostUsers: false\n"
	dressed := strings.Replace(dressed(ns, "dressed"), "  volumes:\n",
		"  "+mapped+"  runtimeClassName: "+class+"\n  securityContext: {runAsUser: 1000, runAsNonRoot: true, fsGroup: 2000}\n  volumes:\n", 1)
	dressed = strings.Replace(dressed, "{name: conf, mountPath: /conf}",
		"{name: conf, mountPath: /conf, readOnly: true, recursiveReadOnly: IfPossible}", 1)
	c.Apply(t, objects(ns)+dressed+pod(ns, "other", mapped+"runtimeClassName: "+class, "", "serve", ":8080"))
	p := c.AwaitReady(t, ns, "dressed", "other")["dressed"]
	token, _ := seen(t, c, n, ns, "dressed")
	valid(t, c, token, ns, "dressed")
	for _, m := range p.Status.ContainerStatuses[0].VolumeMounts {
		if m.Name == "conf" && (m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled) {
			t.Errorf("the status has the mount %+v", m)
		}
	}
	users := func(name string) string {
		return strings.Join(strings.Fields(c.Kubectl(t, "-n", ns, "exec", name, "-c", "c", "--", "/podtool", "cat", "/proc/self/uid_map")), " ")
	}
	before := users("dressed")
	if other := users("other"); other == before || !strings.HasSuffix(before, " 65536") || !strings.HasSuffix(other, " 65536") {
		t.Errorf("the user namespaces are %q and %q", before, other)
	}
	debug(t, c, ns, "other", "--container=shell", "--target=c", "--", "/podtool", "sleep")
	awaitEphemeral(t, c, ns, "other", "shell", "to run", runs)
	if out := c.Kubectl(t, "-n", ns, "exec", "other", "-c", "shell", "--", "/podtool", "cat",
		"/proc/1/cmdline"); !strings.Contains(out, "serve") {
		t.Errorf("the first process in its PID namespace is %q", out)
	}
	if !own {
		c.Apply(t, pod(ns, "waits", mapped, "", "sleep"))
		n.Await("an event of the refusal", func() bool {
			out := c.Events(t, ns, "involvedObject.name=waits")
			return strings.Contains(out, "FailedCreatePodSandBox") &&
				strings.Contains(out, "can't set `spec.hostUsers: false`, runtime does not support user namespaces")
		})
		c.Kubectl(t, "-n", ns, "delete", "pod", "waits", "--timeout=120s")
		n.WaitReady("dressed", "other") // the deletion has reached the node
	}

	n.Cut(t)
	n.Kill()
	n.Start()
	n.Reboot()
	n.Start()
	n.WaitReady("dressed", "other")
	if now := strings.Join(strings.Fields(inside(n, ns, "dressed", "cat", "/proc/self/uid_map")), " "); now != before {
		t.Errorf("the user namespace after a reboot without a link is %q, before %q", now, before)
	}
	n.Restore(t)
	c.AwaitPod(t, ns, "dressed", "to be ready", cluster.PodReady)
	c.Kubectl(t, "-n", ns, "delete", "pod", "dressed", "other", "--timeout=120s")
	if left := n.Files(n.Disk + "/kubelet/pods"); len(left) > 0 {
		t.Errorf("pod directories are left: %q", left)
	}
}
