package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Node is a machine that runs islet as a node of the cluster.
type Node struct {
	*machine.Machine
	*Link

	c *Cluster
	t testing.TB
}

// Node boots a machine with a cable and the test image. The test's name becomes the machine's host name. The machine has a bootstrap
// kubeconfig, so islet registers the node when islet starts. The last argument is the address of the API server or of a Proxy. If it is
// empty, the node uses the API server's own address.
func (c *Cluster) Node(t testing.TB, server string) *Node {
	t.Helper()
	if server == "" {
		server = gateway + ":6443"
	}
	m, l := c.Machine(t)
	n := &Node{Machine: m, Link: l, c: c, t: t}
	m.Write("bootstrap.conf", c.BootstrapKubeconfig(server))
	m.Write("ca.crt", c.Authority())
	m.Write("kubelet.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true, cacheTTL: 2m}
  x509: {clientCAFile: %[1]s/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 5m, cacheUnauthorizedTTL: 30s}
cgroupRoot: %[2]s
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
failSwapOn: false
podLogsDir: %[1]s/logs
rotateCertificates: true
`, m.Disk, m.Cgroup)+machine.Roomy)
	m.Boot()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Node in the cluster:\n%s", c.Describe("node", m.Name))
		}
	})
	return n
}

// Machine returns a machine that is off, with a cable and the test image. The test's name becomes the machine's host name. When the test
// ends, the Node of this name is deleted.
func (c *Cluster) Machine(t testing.TB) (*machine.Machine, *Link) {
	t.Helper()
	// The cleanup of the machine runs before this cleanup. Otherwise a running agent would register the Node again.
	t.Cleanup(func() { c.deleteNode(t, Name(t)) })
	m := machine.New(t, Name(t))
	m.InstallImage()
	return m, c.Plug(m)
}

// Guest prepares the cluster for a machine that the test creates, such as a virtual machine. It returns the PID of a
// process in the API server's network namespace. When the test ends, the Node with the test's name is deleted.
func (c *Cluster) Guest(t testing.TB) (pid int) {
	t.Helper()
	t.Cleanup(func() { c.deleteNode(t, Name(t)) })
	return c.host.Pid()
}

// deleteNode deletes the Node of a machine that is off.
func (c *Cluster) deleteNode(t testing.TB, name string) {
	err := c.admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// Flags returns islet's flags on this node, in addition to the flags on every machine.
func (n *Node) Flags() []string {
	return []string{"--kubeconfig=" + n.Disk + "/kubelet.conf", "--bootstrap-kubeconfig=" + n.Disk + "/bootstrap.conf",
		"--cert-dir=" + n.Disk + "/pki", "--node-ip=" + n.Addr}
}

// Start starts islet and waits until islet answers. It does not wait for a connection to the API server.
func (n *Node) Start(extra ...string) { n.t.Helper(); n.StartAgent(append(n.Flags(), extra...)...) }

// Join starts islet and waits until its Node is ready.
func (n *Node) Join(extra ...string) *corev1.Node {
	n.t.Helper()
	n.Start(extra...)
	return n.c.AwaitNode(n.t, n.Name, "to be ready", NodeReady)
}

// Reboot cuts the power and boots the machine again. It does not start islet.
func (n *Node) Reboot() {
	n.t.Helper()
	n.PowerOff()
	n.Boot()
}

// Describe returns the output of kubectl describe, for a failed test.
func (c *Cluster) Describe(args ...string) string {
	out, err := c.TryKubectl("", append([]string{"--request-timeout=5s", "describe"}, args...)...)
	if err != nil {
		return fmt.Sprint(err, " ", out)
	}
	return out
}
