// Package node tests a node of a real cluster as a whole: the real binary, real
// containers, a real control plane, each test on a machine of its own.
package node

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// start gives a test of a node the control plane.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.Start(t)
}

// join gives a test a ready node and a namespace. Such tests run side by side: they
// mostly wait, and touch nothing but what is theirs.
func join(t *testing.T, flags ...string) (*cluster.Cluster, *cluster.Node, string) {
	t.Helper()
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Join(flags...)
	return c, n, c.Namespace(t)
}

// pod is the manifest of a pod with one container that runs podtool; spec and
// container are further fields of each, one a line.
func pod(ns, name, spec, container string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  terminationGracePeriodSeconds: 2
%s  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    args: ["%s"]
%s---
`, name, ns, indent("  ", spec), machine.Image, strings.Join(args, `", "`), indent("    ", container))
}

func indent(by, lines string) string {
	if lines == "" {
		return ""
	}
	return by + strings.ReplaceAll(strings.Trim(lines, "\n"), "\n", "\n"+by) + "\n"
}

// pods makes n pods that sleep and waits until they are ready.
func pods(t *testing.T, c *cluster.Cluster, ns string, n int) map[string]*corev1.Pod {
	t.Helper()
	var all strings.Builder
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("p", i))
		all.WriteString(pod(ns, names[i], "", "", "sleep"))
	}
	c.Apply(t, all.String())
	return c.AwaitReady(t, ns, names...)
}

// container is the identity of a pod's first container.
func container(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

// unchanged demands that the pods' containers are those of before.
func unchanged(t *testing.T, c *cluster.Cluster, before map[string]*corev1.Pod) {
	t.Helper()
	for name, old := range before {
		now := c.AwaitPod(t, old.Namespace, name, "to be ready", cluster.PodReady)
		if now.UID != old.UID || container(now) != container(old) || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: want container %s, have %s", name, container(old), container(now))
		}
	}
}

// crash kills the processes of a pod's containers.
func crash(t *testing.T, n *cluster.Node, pod *corev1.Pod) {
	t.Helper()
	killed := 0
	for pid := range n.ContainerProcesses() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && strings.Contains(string(b), string(pod.UID)) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("pod %s has no process", pod.Name)
	}
}

// inside runs podtool in a pod, with the node's own command.
func inside(n *cluster.Node, ns, name string, args ...string) string {
	return n.Islet(append([]string{"exec", "-n", ns, name, "--", "/podtool"}, args...)...)
}

// contains says whether a file holds a text.
func contains(t *testing.T, file, text string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}

// within demands that something has not taken longer than a node may, on a machine
// whose processors nobody else wants. It tells a wait for the next attempt from one for
// the event; how fast a node is, make bench tells.
func within(t *testing.T, what string, began time.Time, limit time.Duration) {
	t.Helper()
	took := time.Since(began)
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	var load float64
	if _, err := fmt.Sscan(string(b), &load); err != nil {
		t.Fatalf("/proc/loadavg says %q: %v", b, err)
	}
	crowd := time.Duration(max(1, math.Ceil(load/float64(runtime.NumCPU()))))
	if t.Logf("%s after %v", what, took); took > limit*crowd {
		t.Errorf("that is too long: %v would do", limit*crowd)
	}
}
