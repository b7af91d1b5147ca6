package node

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// probed is a pod that serves HTTP. It is ready while the file /ready exists, and alive until the file /dead exists.
const probed = `
    ports: [{name: web, containerPort: 8080}]
    startupProbe: {exec: {command: [/podtool, cat, /etc/hostname]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1000}
    readinessProbe: {httpGet: {path: /if/ready, port: web}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {httpGet: {path: /unless/dead, port: web}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}`

// stuckCommand is a pod that ignores SIGTERM and whose liveness probe times out. Without the grace period of the probe, the pod would
// continue to run for an hour.
const stuckCommand = `apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  terminationGracePeriodSeconds: 3600
  containers:
  - name: c
    image: IMAGE
    imagePullPolicy: Never
    args: [stubborn]
    livenessProbe:
      exec: {command: [/podtool, sleep]}
      periodSeconds: 1
      failureThreshold: 1
      terminationGracePeriodSeconds: 1
  initContainers:
  - name: side
    image: IMAGE
    imagePullPolicy: Never
    restartPolicy: Always
    args: [serve, ":9090"]
    startupProbe: {tcpSocket: {port: 9090}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1000}
`

func TestProbes(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/web.yaml", manifest("web", probed, "serve", ":8080"))
	m.StartAgent()
	m.Await("the event of a container that is not ready", func() bool {
		return strings.Contains(m.Islet("describe", "pod", "web-edge"), "Readiness probe failed: HTTP probe failed with statuscode: 503")
	})
	if pod := m.Pods()["web-edge"]; pod.Status.Phase != "Running" || pod.Ready() {
		t.Errorf("not ready: %+v", pod.Status)
	}
	m.Islet("exec", "web-edge", "--", "/podtool", "write", "/ready", "x")
	m.WaitReady("web-edge")

	m.Stop() // the agent stores the pod's status before it exits
	m.StartAgent()
	before := m.WaitReady("web-edge")["web-edge"].Status
	m.Kill()
	m.StartAgent()
	after := m.WaitReady("web-edge")["web-edge"].Status
	for i, c := range after.Conditions {
		if b := before.Conditions[i]; b != c {
			t.Errorf("condition %+v became %+v", b, c)
		}
	}
	if a, b := after.ContainerStatuses[0], before.ContainerStatuses[0]; a.ContainerID != b.ContainerID || a.RestartCount != 0 {
		t.Errorf("%+v became %+v", b, a)
	}

	m.Islet("exec", "web-edge", "--", "/podtool", "write", "/dead", "x")
	m.WaitPods("the container to be restarted and not to be ready", func(pods map[string]machine.Pod) bool {
		p := pods["web-edge"]
		return restarts(pods) == 1 && p.Status.ContainerStatuses[0].State.Running != nil && !p.Ready()
	})
	m.Await("the events of the probes", func() bool {
		out := m.Islet("describe", "pod", "web-edge")
		return strings.Contains(out, "Liveness probe failed: HTTP probe failed with statuscode: 503") &&
			strings.Contains(out, "Container c failed liveness probe, will be restarted")
	})
	m.Remove("manifests/web.yaml")
	m.WaitReady()

	m.Write("manifests/stuck.yaml", strings.ReplaceAll(stuckCommand, "IMAGE", machine.Image))
	m.WaitPods("the stuck container to be restarted", func(pods map[string]machine.Pod) bool {
		p := pods["stuck-edge"]
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	m.Await("the event of a command that is too slow", func() bool {
		return strings.Contains(m.Islet("describe", "pod", "stuck-edge"),
			`Liveness probe failed: command timed out: "/podtool sleep" timed out after 1s`)
	})
}
