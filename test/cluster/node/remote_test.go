package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/test/machine"
)

// TestRemote checks a node whose containers run in containerd. kubectl must work. Pods must continue to run while the link is cut, the
// agent is killed and containerd restarts. A pod that is created in this time must start when the link is restored.
func TestRemote(t *testing.T) {
	t.Parallel()
	ports := 18090
	machine.EachContainerd(t, func(t *testing.T, dir string) {
		c := start(t)
		n := c.Node(t, "")
		runtime := n.NewContainerd(dir)
		runtime.Start()
		runtime.Import()
		remote := "--container-runtime-endpoint=" + machine.Endpoint
		n.Join(remote)
		ns := c.Namespace(t)
		k := kubectl{c, ns, ports}
		ports += 2
		k.all(t, n)

		before := pods(t, c, ns, 2)
		n.Cut(t)
		n.Kill()
		runtime.Kill()
		runtime.Start()
		n.Start(remote)
		n.WaitPods("the pods to be ready still", func(all map[string]machine.Pod) bool {
			return all["p0"].Ready() && all["p1"].Ready() && all["count"].Ready() && all["cat"].Ready() && all["static-"+n.Name].Ready()
		})
		crash(t, n, before["p1"]) // also the pause container, so that the next end of the container is not that of the sandbox
		n.WaitPods("the container that ended to run again", func(all map[string]machine.Pod) bool {
			return all["p1"].Ready() && all["p1"].Status.ContainerStatuses[0].RestartCount > 0
		})
		c.Apply(t, pod(ns, "meanwhile", "", "", "sleep"))
		n.Restore(t)
		c.AwaitReady(t, ns, "p0", "p1", "meanwhile")
		if now := c.AwaitReady(t, ns, "p0")["p0"]; container(now) != container(before["p0"]) {
			t.Errorf("p0 runs in %s, not in %s", container(now), container(before["p0"]))
		}
		k.want(t, "p0\n", "exec", "p0", "--", "/podtool", "cat", "/etc/hostname")
		n.Remove("manifests/static.yaml")
		c.Kubectl(t, "-n", ns, "delete", "pods", "--all", "--timeout=120s")
		n.Await("nothing to be left", func() bool { return n.Containers() == 0 })

		// A pod ends while no agent runs, and the next agent uses another runtime.
		c.Apply(t, pod(ns, "once", "restartPolicy: Never\n", "", "sleep"))
		ran := c.AwaitReady(t, ns, "once")["once"]
		n.Kill()
		crash(t, n, ran)
		n.Await("the pod to have ended", func() bool { return n.Containers() == 0 })
		n.InstallImage()
		n.Start()
		once := c.AwaitPod(t, ns, "once", "to have failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if end := once.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 || container(once) != container(ran) {
			t.Errorf("the pod that ended before the change of the runtime: %+v", once.Status.ContainerStatuses[0])
		}
	})
}
