package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// board sets the serial number of a machine's board. The host's board need not have a serial number.
func board(n *cluster.Node, serial string) {
	n.Run("sh", "-ec", `dir=$(mktemp -d /run/class.XXXX)
mount -t tmpfs class $dir
for d in /sys/class/*; do
	[ ${d##*/} = dmi ] || { mkdir $dir/${d##*/}; mount --bind $d $dir/${d##*/}; }
done
mkdir -p $dir/dmi/id
echo `+serial+` >$dir/dmi/id/product_uuid
mount --rbind $dir /sys/class`)
}

// clone boots a second machine with the same node name, another board and a copy of the disk.
func clone(t *testing.T, c *cluster.Cluster, n *cluster.Node) *cluster.Node {
	t.Helper()
	return boot(t, c, n.Disk, n.Disk, "22222222-aaaa-bbbb-cccc-222222222222")
}

// boot boots a machine with the same node name, the board with a serial number, and a copy of the disk at from. The path of that disk was
// disk while its node ran.
func boot(t *testing.T, c *cluster.Cluster, from, disk, serial string) *cluster.Node {
	t.Helper()
	twin := c.Node(t, "")
	configure(twin, shortLease)
	for _, part := range []string{"state", "pki", "kubelet.conf"} {
		if out, err := exec.Command("cp", "-a", filepath.Join(from, part), twin.Disk).CombinedOutput(); err != nil {
			t.Fatalf("clone the disk: %v: %s", err, out)
		}
	}
	// The clone must not have these records. All machines of a test have the same kernel, so with these records the clone would conclude
	// that it has rebooted, and end the containers of the first machine.
	if err := os.RemoveAll(twin.Disk + "/state/runtime"); err != nil {
		t.Fatal(err)
	}
	twin.Edit("kubelet.conf", func(conf string) string { return strings.ReplaceAll(conf, disk, twin.Disk) })
	board(twin, serial)
	return twin
}

// shortLease configures a machine to renew its Lease every two seconds.
const shortLease = "nodeLeaseDurationSeconds: 8\n"

// A soleWriter is a node with two ready pods: plain, and writer, which writes to a shared volume by a claim. The node has a board with a
// serial number.
type soleWriter struct {
	*cluster.Node
	t      *testing.T
	c      *cluster.Cluster
	ns     string
	joined *corev1.Node
	pods   map[string]*corev1.Pod
	shared string // the directory of the volume
}

func joinSoleWriter(t *testing.T, serial string) *soleWriter {
	t.Helper()
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	configure(n, shortLease)
	board(n, serial)
	w := &soleWriter{Node: n, t: t, c: c, joined: n.Join(), ns: c.Namespace(t), shared: t.TempDir()}
	volume := w.ns + "-shared"
	c.Apply(t, disk{name: "shared", source: "hostPath: {path: " + w.shared + "}"}.manifest(w.ns, n.Name, "shared")+
		claim(w.ns, "shared", volume, "Filesystem"))
	t.Cleanup(func() { c.Kubectl(t, "delete", "pv", volume, "--ignore-not-found", "--wait=false") })
	c.Apply(t, pod(w.ns, "plain", "", "", "sleep")+
		pod(w.ns, "writer", "volumes:\n- {name: shared, persistentVolumeClaim: {claimName: shared}}",
			"volumeMounts:\n- {name: shared, mountPath: /shared}", "sole", "/shared/writer"))
	w.pods = c.AwaitReady(t, w.ns, "plain", "writer")
	return w
}

// starts returns how often the writer has started. It must never run twice at the same time.
func (w *soleWriter) starts() int {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.shared, "writer"))
	if err != nil || strings.Contains(string(b), "twice") {
		w.t.Errorf("the pod with the claim has run on both machines at the same time: %v\n%s", err, b)
	}
	return strings.Count(string(b), "started")
}

// TestTwins clones the disk of a running node. It checks that the clone detects this, reports it, and does not start a pod that writes to
// a shared volume. The Node must stay ready and show the condition DuplicateNode. After the first machine is lost, islet takeover must
// give the name to the clone. The pod with the claim must never run twice at the same time.
func TestTwins(t *testing.T) {
	n := joinSoleWriter(t, "11111111-aaaa-bbbb-cccc-111111111111")
	c, ns, before := n.c, n.ns, n.pods
	n.Stop()
	twin := clone(t, c, n.Node)
	n.Start()
	n.WaitReady("plain", "writer")
	ranOn(t, n.Node, before)
	twin.Start()

	twin.Await("the clone to report that it is a clone", func() bool {
		out, _ := twin.Try("status")
		return strings.Contains(out, "the disk comes from another machine")
	})
	duplicate := func() string {
		node, err := c.Admin().CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(nodeCondition(node, "DuplicateNode").Status)
	}
	n.Await("the Node to show that there are two", func() bool { return duplicate() == "True" })
	c.AwaitNode(t, n.Name, "to be ready, by the first machine", func(node *corev1.Node) bool {
		return cluster.NodeReady(node) && len(node.Status.Addresses) > 0 && node.Status.Addresses[0].Address == n.Addr
	})
	twin.Await("the pod without a claim on the clone, and why the other one waits", func() bool {
		out, _ := twin.Try("describe", "writer", "-n", ns)
		return twin.Pods()["plain"].Ready() && strings.Contains(out, "two machines would write to it")
	})
	ranOn(t, n.Node, before)
	if n.starts() != 1 {
		t.Errorf("the pod with the claim has started on the clone")
	}

	out, code := twin.Try("takeover")
	if code == 0 || !strings.Contains(out, "another machine renews the Lease of node "+n.Name) {
		t.Errorf("takeover while the other machine runs: exit code %d\n%s", code, out)
	}
	n.PowerOff()
	twin.Await("the clone to take over", func() bool {
		out, code = twin.Try("takeover")
		return code == 0
	})
	c.AwaitNode(t, n.Name, "to be the clone", func(node *corev1.Node) bool {
		return cluster.NodeReady(node) && len(node.Status.Addresses) > 0 && node.Status.Addresses[0].Address == twin.Addr
	})
	twin.WaitReady("plain", "writer")
	twin.Await("the Node not to show two machines any more", func() bool { return duplicate() == "" })
	twin.Await("the pod with the claim to have started again", func() bool { return n.starts() == 2 })
}
