// Package node tests a node of a real cluster end to end. The tests use the real binary, real containers and a real control plane. Each
// test has a separate machine.
package node

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// start returns the control plane.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.Start(t)
}

// join returns a ready node and a namespace. It lets the test run in parallel with others. Such tests mostly wait, and change only their
// own objects.
func join(t *testing.T, flags ...string) (*cluster.Cluster, *cluster.Node, string) {
	t.Helper()
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Join(flags...)
	return c, n, c.Namespace(t)
}

// joinProxy is like join, with a proxy between the node and the API server. The proxy has not counted a request yet.
func joinProxy(t *testing.T) (*cluster.Cluster, *cluster.Proxy, *cluster.Node, string) {
	t.Helper()
	t.Parallel()
	c := start(t)
	proxy := c.Proxy(t)
	n := c.Node(t, proxy.Addr)
	n.Join()
	ns := c.Namespace(t)
	proxy.Requests()
	return c, proxy, n, ns
}

// configure adds lines to the KubeletConfiguration of a node.
func configure(n *cluster.Node, lines string) {
	n.Edit("kubelet.yaml", func(conf string) string { return conf + lines })
}

// configureDisk is like configure, but removes the lines that keep a node working on a full disk of the test's host.
func configureDisk(n *cluster.Node, lines string) {
	n.Edit("kubelet.yaml", func(conf string) string { return strings.TrimSuffix(conf, machine.Roomy) + lines })
}

// pod returns a pod with one container that runs podtool. The spec and the container can have additional fields, one per line.
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

// pods creates n sleeping pods and waits until they are ready.
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

// container returns the ID of a pod's first container.
func container(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

// nodeCondition returns a condition of a Node. If the Node has no condition of this type, the result is empty.
func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) (found corev1.NodeCondition) {
	if i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind }); i >= 0 {
		found = n.Status.Conditions[i]
	}
	return found
}

// condition returns a condition of a pod. If the pod has no condition of this type, the result is nil.
func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// unchanged checks that the pods' containers have not changed.
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

// inside runs podtool in a pod with islet exec.
func inside(n *cluster.Node, ns, name string, args ...string) string {
	return n.Islet(append([]string{"exec", "-n", ns, name, "--", "/podtool"}, args...)...)
}

// contains reports whether a file contains a text.
func contains(t *testing.T, file, text string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}

// within fails the test if a node needed more time than the limit. The limit is scaled by the load of the machine. The limit only shows
// whether the node waited for an event or for the next retry. The speed is measured by make bench.
func within(t *testing.T, what string, began time.Time, limit time.Duration) {
	t.Helper()
	took := time.Since(began)
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	var load float64
	if _, err := fmt.Sscan(string(b), &load); err != nil {
		t.Fatalf("/proc/loadavg contains %q: %v", b, err)
	}
	crowd := time.Duration(max(1, math.Ceil(load/float64(runtime.NumCPU()))))
	if t.Logf("%s after %v", what, took); took > limit*crowd {
		t.Errorf("that is too long: the limit is %v", limit*crowd)
	}
}
