package node

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/figures"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// csiImage is the image of test/csidriver.
const csiImage = "localhost/csidriver:test"

var csiArchive = sync.OnceValues(func() ([]byte, error) {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return nil, err
	}
	root := strings.TrimSpace(string(top))
	dir := filepath.Join(root, ".cache/csidriver")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/csidriver", ".")
	build.Dir = filepath.Join(root, "test/csidriver")
	pack := exec.Command("go", "run", "./packaging/mkimage", "-ref", csiImage, "-entrypoint", "/csidriver", "-o", dir+"/csidriver.tar",
		dir+"/csidriver")
	pack.Dir = root
	for _, c := range []*exec.Cmd{build, pack} {
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return os.ReadFile(dir + "/csidriver.tar")
})

// joinWithCSI joins a node that has the image of a CSI driver. It also returns a name for the driver.
func joinWithCSI(t *testing.T, flags ...string) (c *cluster.Cluster, n *cluster.Node, ns, driver string) {
	t.Helper()
	t.Parallel()
	c = start(t)
	n = c.Node(t, "")
	image, err := csiArchive()
	if err != nil {
		t.Fatal(err)
	}
	n.Write("state/images/csidriver.tar", string(image))
	n.Join(flags...)
	ns = c.Namespace(t)
	return c, n, ns, ns + ".csi.dev"
}

// csiPod returns the pod of a driver. Mounts propagate between the driver and the agent in both directions.
func csiPod(n *cluster.Node, ns, driver string) string {
	root := n.Disk + "/kubelet"
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: driver, namespace: %[1]s}
spec:
  nodeName: %[2]s
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  priorityClassName: system-node-critical
  volumes:
  - {name: root, hostPath: {path: %[3]s}}
  - {name: data, hostPath: {path: %[4]s, type: DirectoryOrCreate}}
  - {name: dev, hostPath: {path: /dev}}
  containers:
  - name: c
    image: %[5]s
    imagePullPolicy: Never
    args: ["%[6]s", "%[3]s", "%[4]s"]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: root, mountPath: %[3]s, mountPropagation: Bidirectional}
    - {name: data, mountPath: %[4]s}
    - {name: dev, mountPath: /dev}
---
`, ns, n.Name, root, n.Disk+"/csi-data", csiImage, driver)
}

func csiDriver(t *testing.T, c *cluster.Cluster, driver, spec string) {
	t.Helper()
	c.Apply(t, fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: %s}\nspec: {%s}\n", driver, spec))
	t.Cleanup(func() { c.Kubectl(t, "delete", "csidriver", driver, "--ignore-not-found", "--wait=false") })
}

func csiDisk(driver, handle string, block bool) disk {
	return disk{name: handle, source: fmt.Sprintf("csi: {driver: %s, volumeHandle: %s}", driver, handle), block: block}
}

// csiMounts returns the mounts of CSI volumes on a machine.
func csiMounts(n *cluster.Node) []string {
	return slices.DeleteFunc(n.Mounts(), func(p string) bool {
		return !strings.Contains(p, "kubernetes.io~csi") && !strings.Contains(p, "kubernetes.io/csi")
	})
}

// attach attaches the volumes of a driver until the test ends, like the driver's external attacher.
func attach(t *testing.T, c *cluster.Cluster, driver string) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	w, err := c.Admin().StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		defer w.Stop()
		for e := range w.ResultChan() {
			a, ok := e.Object.(*storagev1.VolumeAttachment)
			if !ok || a.Spec.Attacher != driver || a.Status.Attached || a.DeletionTimestamp != nil {
				continue
			}
			patch := []byte(`{"status":{"attached":true,"attachmentMetadata":{"disk":"sdb"}}}`)
			if _, err := c.Admin().StorageV1().VolumeAttachments().Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
}

// TestCSI checks a pod with a claim, a block device and an inline volume of a CSI driver. The driver is a pod of the node. A controller
// attaches its volumes. The data must survive a SIGKILL of the agent and a reboot without a link. The status in the cluster must be that
// of a kubelet. When the pod is deleted, no volume may be mounted, and all data must exist.
func TestCSI(t *testing.T) {
	c, n, ns, driver := joinWithCSI(t, "--sync-frequency=3s")
	csiDriver(t, c, driver,
		"attachRequired: true, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral], tokenRequests: [{audience: vault}], requiresRepublish: true")
	attach(t, c, driver)
	raw := loop(t, t.TempDir(), "raw", 64)
	if err := os.WriteFile(raw, []byte("raw bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, d := range []disk{csiDisk(driver, "files", false), csiDisk(driver, "raw", true)} {
		mode := map[bool]string{true: "Block", false: "Filesystem"}[d.block]
		all.WriteString(strings.ReplaceAll(d.manifest(ns, n.Name, d.name)+claim(ns, d.name, ns+"-"+d.name, mode), `storageClassName: ""`,
			"storageClassName: "+ns))
	}
	all.WriteString(fmt.Sprintf(
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: %s}\nprovisioner: %s\nallowVolumeExpansion: true\n---\n", ns,
		driver))
	t.Cleanup(func() {
		c.Kubectl(t, "delete", "pv/"+ns+"-files", "pv/"+ns+"-raw", "storageclass/"+ns, "--ignore-not-found", "--wait=false")
	})
	c.Apply(t, all.String()+pod(ns, "p", "nodeName: "+n.Name+"\nsecurityContext: {fsGroup: 4242}\nvolumes:\n"+
		"- {name: files, persistentVolumeClaim: {claimName: files}}\n- {name: raw, persistentVolumeClaim: {claimName: raw}}\n- {name: own, csi: {driver: "+driver+"}}\n",
		"volumeMounts: [{name: files, mountPath: /files}, {name: own, mountPath: /own}]\nvolumeDevices: [{name: raw, devicePath: /dev/raw}]\n",
		"sleep"))
	describes(t, c, n, []string{"FailedMount", "not found in the list of registered CSI drivers"}, "-n", ns, "pod", "p")

	c.Apply(t, csiPod(n, ns, driver))
	c.AwaitReady(t, ns, "driver")
	n.Run("cp", "-a", raw, n.Disk+"/csi-data/raw")
	p := c.AwaitReady(t, ns, "p")["p"]
	inside(n, ns, "p", "write", "/files/file", "kept")
	check := func(when string) {
		t.Helper()
		for path, want := range map[string]string{"/files/file": "kept", "/dev/raw": "raw bytes", "/own/pod": "p"} {
			if got := inside(n, ns, "p", "cat", path); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s has %.20q", when, path, got)
			}
		}
	}
	check("at first")
	if got := n.Run("stat", "-c", "%g", n.Disk+"/csi-data/files"); got != "4242\n" {
		t.Errorf("the group of the volume is %q", got)
	}
	csiTold(t, c, n, driver)
	csiMeasured(t, c, n, "files")
	csiGrows(t, c, n, ns, "files", "p")
	csiTokens(t, n, "files")
	before := csiMounts(n)

	n.Cut(t)
	n.Kill()
	n.Start()
	n.WaitReady("p", "driver")
	check("after the agent was killed")
	n.Reboot()
	n.Start()
	n.WaitReady("p", "driver")
	check("after a reboot without a link")
	if after := csiMounts(n); len(after) != len(before) {
		t.Errorf("mounts: %q, before %q", after, before)
	}
	n.Restore(t)
	c.AwaitPod(t, ns, "p", "to be ready", cluster.PodReady)
	csiTold(t, c, n, driver)

	c.Kubectl(t, "-n", ns, "delete", "pod", "p", "--wait=false")
	c.AwaitGone(t, p)
	n.Await("all to be unmounted", func() bool { return len(csiMounts(n)) == 0 })
	c.AwaitNode(t, n.Name, "to have no volume in use or attached", func(n *corev1.Node) bool {
		return len(n.Status.VolumesInUse) == 0 && len(n.Status.VolumesAttached) == 0
	})
	if !contains(t, n.Disk+"/csi-data/files/file", "kept") {
		t.Error("the data is missing")
	}
	c.Kubectl(t, "-n", ns, "delete", "pod", "driver", "--wait=false")
	c.AwaitAny(t, "csinodes", "", n.Name, &storagev1.CSINode{}, "to have no driver", func(o runtime.Object) bool {
		return len(o.(*storagev1.CSINode).Spec.Drivers) == 0
	})
}

// csiTold waits until the CSINode and the Node contain the driver and its volumes.
func csiTold(t *testing.T, c *cluster.Cluster, n *cluster.Node, driver string) {
	t.Helper()
	c.AwaitAny(t, "csinodes", "", n.Name, &storagev1.CSINode{}, "to have the driver", func(o runtime.Object) bool {
		d := o.(*storagev1.CSINode).Spec.Drivers
		return len(d) == 1 && d[0].Name == driver && d[0].NodeID == n.Name && *d[0].Allocatable.Count == 100 && len(d[0].TopologyKeys) == 1
	})
	c.AwaitNode(t, n.Name, "to contain the driver and its volumes", func(node *corev1.Node) bool {
		want := []corev1.UniqueVolumeName{corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^files"), corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^raw")}
		return slices.Equal(node.Status.VolumesInUse, want) && len(node.Status.VolumesAttached) == 2 &&
			node.Labels["topology."+driver+"/node"] == n.Name &&
			strings.Contains(node.Annotations["csi.volume.kubernetes.io/nodeid"], `"`+driver+`":"`+n.Name+`"`)
	})
}

// csiMeasured checks that the Summary contains a claim's figures from the driver.
func csiMeasured(t *testing.T, c *cluster.Cluster, n *cluster.Node, claim string) {
	t.Helper()
	var sum statsv1alpha1.Summary
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/stats/summary")), &sum); err != nil {
		t.Fatal(err)
	}
	for _, p := range sum.Pods {
		for _, v := range p.VolumeStats {
			if v.PVCRef != nil && v.PVCRef.Name == claim {
				if v.CapacityBytes == nil || *v.CapacityBytes != 100 || v.UsedBytes == nil || *v.UsedBytes != 1 {
					t.Errorf("claim %s: %+v", claim, v)
				}
				return
			}
		}
	}
	t.Errorf("the Summary has no claim %s", claim)
}

// csiGrows expands a claim while a pod uses it. The test performs the task of the external resizer.
func csiGrows(t *testing.T, c *cluster.Cluster, n *cluster.Node, ns, claim, pod string) {
	t.Helper()
	c.Kubectl(t, "-n", ns, "patch", "pvc", claim, "--patch", `{"spec": {"resources": {"requests": {"storage": "32Mi"}}}}`)
	c.Kubectl(t, "patch", "pv", ns+"-"+claim, "--patch", `{"spec": {"capacity": {"storage": "32Mi"}}}`)
	c.Kubectl(t, "-n", ns, "patch", "pvc", claim, "--subresource=status", "--patch",
		`{"status": {"allocatedResources": {"storage": "32Mi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}, "conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}`)
	c.AwaitAny(t, "persistentvolumeclaims", ns, claim, &corev1.PersistentVolumeClaim{}, "to have grown", func(o runtime.Object) bool {
		s := o.(*corev1.PersistentVolumeClaim).Status
		pending := slices.ContainsFunc(s.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
		return s.Capacity.Storage().String() == "32Mi" && !pending && len(s.AllocatedResourceStatuses) == 0
	})
	describes(t, c, n, []string{"FileSystemResizeSuccessful"}, "-n", ns, "pod", pod)
}

// csiTokens waits until a driver with requiresRepublish has received tokens two more times.
func csiTokens(t *testing.T, n *cluster.Node, handle string) {
	t.Helper()
	had := func() []string { return strings.Fields(n.Run("cat", n.Disk+"/csi-data/"+handle+".tokens")) }
	first := len(had())
	n.Await("the driver to get tokens again", func() bool { return len(had()) >= first+2 })
	for _, line := range had() {
		var tokens map[string]struct {
			Token   string
			Expires time.Time `json:"expirationTimestamp"`
		}
		if err := json.Unmarshal([]byte(line), &tokens); err != nil || len(tokens) != 1 ||
			strings.Count(tokens["vault"].Token, ".") != 2 || !tokens["vault"].Expires.After(time.Now()) {
			t.Errorf("tokens %.40q: %v", line, err)
		}
	}
}

// TestCSIDriverDies checks that pods with CSI volumes continue to run while the driver is not running or is replaced. A pod that needs the
// driver must wait until the driver is back.
func TestCSIDriverDies(t *testing.T) {
	c, n, ns, driver := joinWithCSI(t, "--sync-frequency=3s")
	csiDriver(t, c, driver, "attachRequired: false")
	mounts := func(name string) string {
		return pod(ns, name, "nodeName: "+n.Name+"\nvolumes: [{name: data, persistentVolumeClaim: {claimName: "+name+"}}]",
			"volumeMounts: [{name: data, mountPath: /data}]", "sleep")
	}
	for _, name := range []string{"a", "b"} {
		c.Apply(t, csiDisk(driver, name, false).manifest(ns, n.Name, name)+claim(ns, name, ns+"-"+name, "Filesystem"))
	}
	t.Cleanup(func() { c.Kubectl(t, "delete", "pv", ns+"-a", ns+"-b", "--ignore-not-found", "--wait=false") })
	c.Apply(t, csiPod(n, ns, driver)+mounts("a"))
	ready := c.AwaitReady(t, ns, "driver", "a")
	inside(n, ns, "a", "write", "/data/file", "kept")
	c.Kubectl(t, "-n", ns, "delete", "pod", "driver", "--force", "--grace-period=0")
	c.AwaitGone(t, ready["driver"])
	c.Apply(t, mounts("b"))
	describes(t, c, n, []string{"FailedMount", "driver name " + driver + " not found in the list of registered CSI drivers"}, "-n", ns, "pod", "b")
	if got := inside(n, ns, "a", "cat", "/data/file"); !strings.HasPrefix(got, "kept") {
		t.Errorf("without the driver: %q", got)
	}
	c.Kubectl(t, "-n", ns, "delete", "pod", "a", "--wait=false")
	n.Await("the volume of a to need the driver", func() bool {
		return strings.Contains(n.AgentLog(1<<20),
			"UnmountVolume.TearDown failed for volume")
	})
	c.Apply(t, csiPod(n, ns, driver))
	c.AwaitGone(t, ready["a"])
	c.AwaitReady(t, ns, "b")
	if got := csiMounts(n); len(got) != 2 {
		t.Errorf("mounted: %q", got)
	}
}

// TestThirtyCSI compares thirty pods that use one claim each with thirty pods that use no claim. The pods with claims may take at most
// twice as long to become ready. With these pods, the node's processes may use at most 3 MiB more memory. Both kinds run in turn on one
// node. While the memory without CSI is measured, another pod runs instead of the driver.
func TestThirtyCSI(t *testing.T) {
	figures.SkipUnlessBench(t)
	c, n, ns, driver := joinWithCSI(t)
	const many = 30
	run := func(kind, volume, mount string) (ready time.Duration, pss float64) {
		var all strings.Builder
		var names []string
		for i := range many {
			name := fmt.Sprint(kind, i)
			names = append(names, name)
			all.WriteString(pod(ns, name, "nodeName: "+n.Name+"\n"+strings.ReplaceAll(volume, "CLAIM", fmt.Sprint("v", i)), mount, "sleep"))
		}
		began := time.Now()
		c.Apply(t, all.String())
		made := c.AwaitReady(t, ns, names...)
		ready = time.Since(began)
		pss = math.Inf(1)
		for range 8 { // an idle node; a single measurement may include the renewal of a lease
			cluster.Pass(5 * time.Second)
			pss = min(pss, n.TotalPSS())
		}
		c.Kubectl(t, append([]string{"-n", ns, "delete", "pod", "--wait=false", "--grace-period=1"}, names...)...)
		for _, p := range made {
			c.AwaitGone(t, p)
		}
		return ready, pss
	}
	c.Apply(t, pod(ns, "stand-in", "nodeName: "+n.Name, "", "sleep")) // runs instead of the driver
	standIn := c.AwaitReady(t, ns, "stand-in")["stand-in"]
	run("first-", "", "")
	_, none := run("before-", "", "") // so that the node has run as many pods before as in the rounds below
	c.Kubectl(t, "-n", ns, "delete", "pod", "stand-in", "--wait=false", "--grace-period=1")
	c.AwaitGone(t, standIn)

	csiDriver(t, c, driver, "attachRequired: false")
	c.Apply(t, csiPod(n, ns, driver))
	c.AwaitReady(t, ns, "driver")
	var disks strings.Builder
	var pvs []string
	for i := range many {
		name := fmt.Sprint("v", i)
		pvs = append(pvs, ns+"-"+name)
		disks.WriteString(csiDisk(driver, name, false).manifest(ns, n.Name, name) + claim(ns, name, ns+"-"+name, "Filesystem"))
	}
	c.Apply(t, disks.String())
	t.Cleanup(func() {
		c.Kubectl(t, append([]string{"delete", "pv", "--ignore-not-found", "--wait=false"}, pvs...)...)
	})
	for i := range many {
		c.AwaitAny(t, "persistentvolumeclaims", ns, fmt.Sprint("v", i), &corev1.PersistentVolumeClaim{}, "to be bound", bound)
	}
	for round := range 2 {
		without, before := run(fmt.Sprint("without", round, "-"), "", "")
		with, after := run(fmt.Sprint("with", round, "-"), "volumes: [{name: data, persistentVolumeClaim: {claimName: CLAIM}}]",
			"volumeMounts: [{name: data, mountPath: /data}]")
		t.Logf("ready without a volume after %v, with one after %v (%.2f times, goal 2); memory without a driver %.1f, with a driver %.1f, with volumes %.1f MiB (%+.1f, goal +3)",
			without.Round(time.Millisecond), with.Round(time.Millisecond), with.Seconds()/without.Seconds(), none, before, after, after-none)
	}
}
