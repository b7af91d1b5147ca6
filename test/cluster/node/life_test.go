package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// lived is a pod whose containers write their starts, exits and hooks to DISK/shared/log. It is ready while the file DISK/shared/ready
// exists, and alive until the file DISK/shared/dead exists.
const lived = `apiVersion: v1
kind: Pod
metadata: {name: lived, namespace: NS}
spec:
  terminationGracePeriodSeconds: 60
  volumes: [{name: v, hostPath: {path: DISK/shared, type: DirectoryOrCreate}}]
  initContainers:
  - {name: s, restartPolicy: Always, IMAGE, args: [live, /v/log, s],
     startupProbe: {exec: {command: [/podtool, ls, /v]}, timeoutSeconds: 60, periodSeconds: 1},
     lifecycle: {postStart: {exec: {command: [/podtool, hook, /v/log, s.postStart]}}, preStop: {exec: {command: [/podtool, hook, /v/log, s.preStop]}}}}
  containers:
  - {name: c, IMAGE, args: [serve, ":8080"],
     readinessProbe: {httpGet: {path: /if/v/ready, port: 8080}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1},
     livenessProbe: {httpGet: {path: /unless/v/dead, port: 8080}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1},
     lifecycle: {postStart: {exec: {command: [/podtool, hook, /v/log, c.postStart]}}, preStop: {exec: {command: [/podtool, hook, /v/log, c.preStop]}}}}
`

// TestLifeCutOff checks that probes, hooks, sidecars, ephemeral containers and the shutdown of the machine work while the link is cut,
// also after a SIGKILL of the agent. The API must show the result when the link is restored.
func TestLifeCutOff(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Write("kubelet.yaml", n.Kubelet(off))
	n.Join()
	ns := c.Namespace(t)
	c.Apply(t, strings.NewReplacer("NS", ns, "DISK", n.Disk, "IMAGE",
		fmt.Sprintf("image: %s, imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /v}]", machine.Image)).Replace(lived))
	noted := func(line string) (times int) {
		b, err := os.ReadFile(filepath.Join(n.Disk, "shared/log"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count("\n"+string(b), "\n"+line+"\n")
	}
	shows := func(what string, ready bool, restarts int) {
		t.Helper()
		n.WaitPods(what, func(pods map[string]machine.Pod) bool {
			p := pods["lived"]
			return p.Ready() == ready && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil &&
				p.Status.ContainerStatuses[0].RestartCount == restarts
		})
	}
	tells := func(event string) {
		t.Helper()
		n.Await("the event "+event, func() bool { return strings.Contains(n.Islet("describe", ns+"/lived"), event) })
	}
	shows("the pod to run, and not to be ready", false, 0)
	n.Write("shared/ready", "")
	before := c.AwaitReady(t, ns, "lived")["lived"]
	debug(t, c, ns, "lived", "--container=shell", "--", "/podtool", "sleep")
	awaitEphemeral(t, c, ns, "lived", "shell", "to run", runs)

	n.Cut(t)
	n.Remove("shared/ready")
	shows("the probe to fail", false, 0)
	tells("Readiness probe failed: HTTP probe failed with statuscode: 503")
	n.Kill()
	n.Start()
	shows("the pod not to be ready still", false, 0)
	n.Write("shared/ready", "")
	shows("the probe to pass", true, 0)
	n.Write("shared/dead", "")
	n.Await("the hook of the container that is restarted", func() bool { return noted("c.preStop is over") == 1 })
	n.Remove("shared/dead")
	shows("the container to be restarted", true, 1)
	tells("Container c failed liveness probe, will be restarted")
	n.Kill()
	n.Start()
	shows("the pod to be ready still", true, 1)
	for line, want := range map[string]int{"s starts": 1, "s.postStart is over": 1, "c.postStart is over": 2, "c.preStop begins": 1, "s.preStop begins": 0} {
		if got := noted(line); got != want {
			t.Errorf("the log has %d lines %q, not %d", got, line, want)
		}
	}
	if out := n.Islet("exec", "-n", ns, "lived", "-c", "shell", "--", "/podtool", "cat", "/etc/hostname"); out != "lived\n" {
		t.Errorf("the ephemeral container's host name is %q", out)
	}

	n.Islet("shutdown")
	if b, err := os.ReadFile(filepath.Join(n.Disk, "shared/log")); err != nil || !strings.HasSuffix(string(b), "s ends\n") ||
		noted("c.preStop is over") != 2 || noted("s.preStop is over") != 1 {
		t.Errorf("after the shutdown the log is %s, %v", b, err)
	}
	n.Reboot()
	n.Start()
	n.WaitReady("lived")
	if noted("s.postStart is over") != 2 || noted("c.postStart is over") != 3 {
		t.Error("the hooks did not run after the boot")
	}

	n.Restore(t)
	p := c.AwaitPod(t, ns, "lived", "to be shown as it is", func(p *corev1.Pod) bool {
		return cluster.PodReady(p) && !disrupted(p) && p.Status.ContainerStatuses[0].RestartCount > 1
	})
	if e := ephemeral(p, "shell"); p.UID != before.UID || e == nil || e.State.Terminated == nil {
		t.Errorf("the status is %+v", p.Status)
	}
	if !slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == "s" && s.Ready && s.Started != nil && *s.Started
	}) {
		t.Errorf("the status of the sidecar is %+v", p.Status.InitContainerStatuses)
	}
	c.Kubectl(t, "-n", ns, "delete", "pod", "lived", "--timeout=120s")
	if noted("s.preStop is over") != 2 {
		t.Error("the hook of the sidecar did not run when the pod was deleted")
	}
}
