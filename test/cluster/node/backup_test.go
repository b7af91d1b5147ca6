package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReplacedBoard backs up a running node, and restores it on another board while the first one is off. The Node object stays the same,
// the new board requests no certificate, and its pods come back. When the first board comes back, it is the one that must not use the name.
// It runs its stored pods nevertheless, as after each boot: it cannot know of the other board before it reads the Lease.
func TestReplacedBoard(t *testing.T) {
	const first, second = "11111111-dddd-bbbb-cccc-111111111111", "22222222-dddd-bbbb-cccc-222222222222"
	n := joinSoleWriter(t, first)
	c, ns, before, office := n.c, n.ns, n.pods, t.TempDir()
	requests := func() (names []string) {
		list, err := c.Admin().CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Items {
			if r.Spec.Username == "system:node:"+n.Name {
				names = append(names, r.Name)
			}
		}
		return names
	}
	asked := len(requests())

	file, key := office+"/backup", office+"/key"
	to := strings.TrimSpace(n.Islet("backup", "--new-key="+key))
	t.Log(n.Islet("backup", file, "--to="+to))
	n.PowerOff()
	old := n.Disk + "-old"
	if err := errors.Join(os.Rename(n.Disk, old), os.Mkdir(n.Disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(old) })
	n.InstallImage()
	n.Boot()
	board(n.Node, second)
	out := n.Islet(append([]string{"restore", file, "--key=" + key, "--include=" + n.Disk, "--root-dir=" + n.Disk + "/kubelet",
		"--state-dir=" + n.Disk + "/state", "--run-dir=/run/islet"}, n.Flags()...)...)
	t.Log(out)
	n.Start()
	isSecond := func(node *corev1.Node) bool {
		return cluster.NodeReady(node) && node.Status.NodeInfo.SystemUUID == second
	}
	now := c.AwaitNode(t, n.Name, "to be ready, on the second board", isSecond)
	if now.UID != n.joined.UID {
		t.Errorf("the Node was created again: %s instead of %s", now.UID, n.joined.UID)
	}
	n.WaitReady("plain", "writer")
	after := c.AwaitReady(t, ns, "plain", "writer")
	for name, pod := range before {
		if after[name].UID != pod.UID {
			t.Errorf("the pod %s is another one", name)
		}
	}
	if names := requests(); len(names) != asked {
		t.Errorf("the second board has requested a certificate: %q", names)
	}
	n.Await("the pod with the claim to have started on the second board", func() bool { return n.starts() == 2 })

	back := boot(t, c, old, n.Disk, first)
	back.Start()
	back.Await("the first board to report that another one has the name", func() bool {
		out, _ := back.Try("status")
		return strings.Contains(out, "took over the name of this node")
	})
	c.AwaitNode(t, n.Name, "to stay on the second board", func(node *corev1.Node) bool {
		return isSecond(node) && len(node.Status.Addresses) > 0 && node.Status.Addresses[0].Address == n.Addr
	})
}
