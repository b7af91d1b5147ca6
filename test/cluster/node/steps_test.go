package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSteps checks that a watcher of a pod receives each step of the pod's start: the sandbox, the end of each init container, and the
// running container. Each step takes more than a second.
func TestSteps(t *testing.T) {
	c, _, ns := join(t)
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	defer cancel()
	w, err := c.Admin().CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	c.Apply(t, stepping(ns, "p"))
	var seen []string
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch ended: %v", e)
		}
		if s := step(p); s != "" && (len(seen) == 0 || seen[len(seen)-1] != s) {
			seen = append(seen, s)
			t.Logf("%s: %s", time.Now().Format("05.000"), s)
		}
		if cluster.PodReady(p) {
			break
		}
	}
	want := []string{"Pending sandbox=True first=running", "Pending sandbox=True first=Completed second=running",
		"Running sandbox=True first=Completed second=Completed c=running", "Running sandbox=True first=Completed second=Completed c=ready"}
	for _, s := range want {
		if !slices.Contains(seen, s) {
			t.Errorf("the watcher has not received %q", s)
		}
	}
}

// stepping returns a pod whose start has several steps of at least two seconds.
func stepping(ns, name string) string {
	init := func(name string) string {
		return fmt.Sprintf("- {name: %s, image: %s, imagePullPolicy: Never, args: [exit, \"0\", 2s]}", name, machine.Image)
	}
	return pod(ns, name, "initContainers:\n"+init("first")+"\n"+init("second"),
		"readinessProbe: {httpGet: {path: /, port: 8080}, initialDelaySeconds: 3, periodSeconds: 1}", "serve", ":8080")
}

// step returns the phase, the sandbox condition and the state of the containers of a pod. It returns "" if no container has started.
func step(p *corev1.Pod) string {
	var containers []string
	for _, c := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
		switch {
		case c.State.Running != nil && c.Ready:
			containers = append(containers, c.Name+"=ready")
		case c.State.Running != nil:
			containers = append(containers, c.Name+"=running")
		case c.State.Terminated != nil:
			containers = append(containers, c.Name+"="+c.State.Terminated.Reason)
		}
	}
	if len(containers) == 0 {
		return ""
	}
	sandbox := corev1.ConditionUnknown
	if c := condition(p, corev1.PodReadyToStartContainers); c != nil {
		sandbox = c.Status
	}
	return fmt.Sprintf("%s sandbox=%s %s", p.Status.Phase, sandbox, strings.Join(containers, " "))
}
