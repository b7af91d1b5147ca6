package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBootstrap checks that a node joins with a bootstrap token. Static pods must start before the node joins.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Cut(t)
	n.Write("manifests/static.yaml", pod("default", "static", "", "", "sleep"))
	n.Start()
	n.WaitReady("static-" + n.Name)
	n.Restore(t)
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)

	link, err := os.Readlink(filepath.Join(n.Disk, "pki/kubelet-client-current.pem"))
	if err != nil || !strings.HasPrefix(filepath.Base(link), "kubelet-client-2") {
		t.Errorf("kubelet-client-current.pem leads to %q, %v", link, err)
	}
	entries, err := os.ReadDir(filepath.Join(n.Disk, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(n.Disk, "pki", e.Name()))
		if info, err := e.Info(); err != nil || strings.Contains(string(b), "PRIVATE KEY") && e.Type().IsRegular() &&
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(n.Disk, "kubelet.conf")); err != nil || strings.Contains(string(b), c.Token()) {
		t.Errorf("the kubeconfig holds the bootstrap token: %v", err)
	}

	// The next start does not need the token.
	n.Remove("bootstrap.conf")
	n.Kill()
	node := n.Join()
	n.Await("a lease that belongs to the node", func() bool {
		l, err := c.Admin().CoordinationV1().Leases("kube-node-lease").Get(t.Context(), n.Name, metav1.GetOptions{})
		return err == nil && len(l.OwnerReferences) == 1 && l.OwnerReferences[0].UID == node.UID
	})
}

// TestRegistration checks that the Node has the fields that kubectl describe node shows for a kubelet.
func TestRegistration(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	node := n.Join("--node-labels=site=roof,node.kubernetes.io/instance-type=pi", "--register-with-taints=dusty=yes:NoSchedule")
	for label, want := range map[string]string{
		"kubernetes.io/hostname": n.Name, "kubernetes.io/os": "linux", "kubernetes.io/arch": node.Status.NodeInfo.Architecture,
		"site": "roof", "node.kubernetes.io/instance-type": "pi",
	} {
		if node.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, node.Labels[label], want)
		}
	}
	if len(node.Spec.Taints) == 0 || node.Spec.Taints[0].Key != "dusty" {
		t.Errorf("taints are %v", node.Spec.Taints)
	}
	for _, r := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage"} {
		have, could := node.Status.Capacity[r], node.Status.Allocatable[r]
		if have.Sign() <= 0 || could.Sign() <= 0 || could.Cmp(have) > 0 {
			t.Errorf("%s: capacity %v, allocatable %v", r, &have, &could)
		}
	}
	addresses := map[corev1.NodeAddressType]string{}
	for _, a := range node.Status.Addresses {
		addresses[a.Type] = a.Address
	}
	if addresses["InternalIP"] != n.Addr || addresses["Hostname"] != n.Name {
		t.Errorf("addresses are %v", addresses)
	}
	for _, pressure := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		if c := nodeCondition(node, pressure); c.Status != "False" {
			t.Errorf("%s is %q", pressure, c.Status)
		}
	}
	info := node.Status.NodeInfo
	if info.MachineID == "" || info.BootID == "" || info.KernelVersion == "" || info.OSImage == "" || info.OperatingSystem != "linux" ||
		!strings.HasPrefix(info.KubeletVersion, "v1.37.") || !strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") {
		t.Errorf("nodeInfo is %+v", info)
	}
	if node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("daemon endpoints are %+v", node.Status.DaemonEndpoints)
	}
	c.AwaitNode(t, n.Name, "to list the image and have a podCIDR", func(node *corev1.Node) bool {
		for _, i := range node.Status.Images {
			if len(i.Names) > 0 && strings.HasPrefix(i.Names[len(i.Names)-1], machine.Image) && i.SizeBytes > 0 {
				return node.Spec.PodCIDR != ""
			}
		}
		return false
	})
	out := c.Kubectl(t, "describe", "node", n.Name)
	for _, want := range []string{"RenewTime:", "KubeletReady", "Allocatable:", "site=roof", "dusty=yes:NoSchedule"} {
		if !strings.Contains(out, want) {
			t.Errorf("describe does not show %q:\n%s", want, out)
		}
	}
}

// TestNodeDeleted checks that a node registers again after its Node was deleted while the link was cut. Its pods must continue to run, and
// new pods must have addresses of the new podCIDR.
func TestNodeDeleted(t *testing.T) {
	c, n, ns := join(t)
	n.Write("manifests/static.yaml", pod(ns, "static", "", "", "sleep"))
	hasNetwork := func(node *corev1.Node) bool { return node.Spec.PodCIDR != "" }
	old := c.AwaitNode(t, n.Name, "to have a podCIDR", hasNetwork)
	before := pods(t, c, ns, 1)
	static := n.WaitReady("p0", "static-"+n.Name)["static-"+n.Name]
	n.Cut(t)
	c.Kubectl(t, "delete", "node", n.Name)
	n.Restore(t)
	node := c.AwaitNode(t, n.Name, "to come back", func(node *corev1.Node) bool {
		return node.UID != old.UID && cluster.NodeReady(node) && hasNetwork(node)
	})
	unchanged(t, c, before)
	if now := n.WaitReady("p0", "static-"+n.Name)["static-"+
		n.Name]; now.Status.ContainerStatuses[0].ContainerID != static.Status.ContainerStatuses[0].ContainerID {
		t.Error("the static pod was restarted")
	}
	c.AwaitPod(t, ns, "static-"+n.Name, "to be shown by the new node", func(p *corev1.Pod) bool {
		return len(p.OwnerReferences) == 1 && p.OwnerReferences[0].UID == node.UID && cluster.PodReady(p)
	})
	if node.Spec.PodCIDR == old.Spec.PodCIDR {
		t.Fatal("the controller assigned the same podCIDR again, so the test has no effect")
	}
	c.Apply(t, pod(ns, "new", "", "", "sleep"))
	now := c.AwaitReady(t, ns, "new")["new"]
	if ip, err := netip.ParseAddr(now.Status.PodIP); err != nil || !netip.MustParsePrefix(node.Spec.PodCIDR).Contains(ip) {
		t.Errorf("the new pod's address is %q, the node's podCIDR %s", now.Status.PodIP, node.Spec.PodCIDR)
	}
}

// TestNotReady checks that a node without a working pod network is registered and not ready.
func TestNotReady(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Write("cni/10-none.conflist", `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "there-is-none"}]}`)
	n.Start()
	c.AwaitNode(t, n.Name, "to lack its network", func(node *corev1.Node) bool {
		c := nodeCondition(node, corev1.NodeReady)
		return c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" && strings.Contains(c.Message, "network")
	})
	n.Remove("cni/10-none.conflist")
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
}

// TestServingCertificate checks that a node with serverTLSBootstrap serves the certificate that the cluster has signed. kubectl logs must
// work with this certificate.
func TestServingCertificate(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Join("--rotate-server-certificates")
	c.ApproveServing(t, n.Name)
	ns := c.Namespace(t)
	pods(t, c, ns, 1)
	n.Await("the serving certificate to be the cluster's", func() bool {
		chain, err := peer(t, c, n)
		return err == nil && chain[0].Issuer.CommonName == "kubernetes" && chain[0].Subject.CommonName == "system:node:"+n.Name
	})
	c.Kubectl(t, "-n", ns, "logs", "p0")
}
