package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A disk is a PersistentVolume of a node. It is bound to a claim.
type disk struct {
	name, source string
	block, here  bool // here: the volume has the node affinity of its node
}

func (d disk) manifest(ns, node, claim string) string {
	mode, affinity := "Filesystem", ""
	if d.block {
		mode = "Block"
	}
	if d.here {
		affinity = fmt.Sprintf(
			"  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}\n",
			node)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]s}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: %[3]s
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: %[1]s, name: %[4]s}
%[5]s%[6]s---
`, ns, d.name, mode, claim, affinity, indent("  ", d.source))
}

func claim(ns, name, volume, mode string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: %s
  volumeName: %s
  storageClassName: ""
  resources: {requests: {storage: 1Mi}}
---
`, name, ns, mode, volume)
}

// loop creates a loop device with a size in KiB.
func loop(t *testing.T, dir, name string, kib int64) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, kib<<10); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	return dev
}

// volumeMounts returns the mounts of PersistentVolumes on a machine.
func volumeMounts(n *cluster.Node) []string {
	return slices.DeleteFunc(n.Mounts(), func(p string) bool {
		return !strings.Contains(p, "kubernetes.io~local-volume") && !strings.Contains(p, "local-volume/mounts") &&
			!strings.Contains(p, "volume-subpaths")
	})
}

// TestClaims checks a pod with claims to a hostPath, a directory, a disk with a file system, a block device and an ephemeral volume. The
// data must survive a SIGKILL of the agent and a reboot without a link. When the pod is deleted, no volume may be mounted, and all data
// must exist.
func TestClaims(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	dir := t.TempDir()
	formatted, raw := loop(t, dir, "formatted", 16<<10), loop(t, dir, "raw", 64)
	if err := os.WriteFile(raw, []byte("raw bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, local, scratch := n.Disk+"/hostpath", n.Disk+"/local", n.Disk+"/scratch"
	for _, d := range []string{local, scratch} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.Join()
	ns := c.Namespace(t)
	disks := []disk{
		{name: "path", source: "hostPath: {path: " + path + "}"}, {name: "dir", source: "local: {path: " + local + "}", here: true},
		{name: "fs", source: "local: {path: " + formatted + "}", here: true}, {name: "raw", source: "local: {path: " + raw + "}", here: true, block: true},
	}
	var all strings.Builder
	for _, d := range disks {
		mode := "Filesystem"
		if d.block {
			mode = "Block"
		}
		all.WriteString(d.manifest(ns, n.Name, d.name) + claim(ns, d.name, ns+"-"+d.name, mode))
	}
	all.WriteString(disk{name: "scratch", source: "local: {path: " + scratch + "}", here: true}.manifest(ns, n.Name, "p-scratch"))
	c.Apply(t, all.String())
	t.Cleanup(func() {
		for _, d := range append(disks, disk{name: "scratch"}) {
			c.Kubectl(t, "delete", "pv", ns+"-"+d.name, "--ignore-not-found", "--wait=false")
		}
	})
	spec := "securityContext: {fsGroup: 4242}\nvolumes:\n"
	for _, d := range disks {
		spec += fmt.Sprintf("- {name: %[1]s, persistentVolumeClaim: {claimName: %[1]s}}\n", d.name)
	}
	spec += `- name: scratch
  ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: ` + ns +
		`-scratch, resources: {requests: {storage: 1Mi}}}}}
`
	c.Apply(t, pod(ns, "p", spec, `volumeMounts:
- {name: path, mountPath: /path}
- {name: dir, mountPath: /dir}
- {name: dir, mountPath: /sub, subPath: below/here}
- {name: fs, mountPath: /fs}
- {name: scratch, mountPath: /scratch}
volumeDevices:
- {name: raw, devicePath: /dev/raw}
`, "sleep"))
	p := c.AwaitReady(t, ns, "p")["p"]
	places := []string{"/path", "/dir", "/sub", "/fs", "/scratch"}
	for _, at := range places {
		inside(n, ns, "p", "write", at+"/file", "kept in "+at)
	}
	check := func(when string) {
		t.Helper()
		for _, at := range places {
			if got := inside(n, ns, "p", "cat", at+"/file"); !strings.HasPrefix(got, "kept in "+at) {
				t.Errorf("%s: %s has %q", when, at, got)
			}
		}
		if got := inside(n, ns, "p", "cat", "/dev/raw"); !strings.HasPrefix(got, "raw bytes") {
			t.Errorf("%s: the device begins with %.20q", when, got)
		}
	}
	check("at first")
	if got := n.Run("stat", "-c", "%g", local, scratch, path); got != "4242\n4242\n0\n" {
		t.Errorf("the groups of the volumes are %q", got)
	}
	want := fmt.Sprintf("%s/pods/%s/volumes/kubernetes.io~local-volume/%s-fs", n.Disk+"/kubelet", p.UID, ns)
	if got := volumeMounts(n); len(got) != 5 || !slices.ContainsFunc(got,
		func(m string) bool { return strings.HasSuffix(m, strings.TrimPrefix(want, n.Disk+"/kubelet")) }) {
		t.Errorf("mounted: %q, not %s", got, want)
	}

	n.Cut(t)
	n.Kill()
	n.Start()
	n.WaitReady("p")
	crash(t, n, p)
	n.WaitPods("the container to run again", func(pods map[string]machine.Pod) bool {
		return pods["p"].Ready() && pods["p"].Status.ContainerStatuses[0].RestartCount == 1
	})
	check("after the agent was killed")
	n.Reboot()
	n.Start()
	n.WaitReady("p")
	check("after a reboot without a link")
	n.Restore(t)
	c.AwaitPod(t, ns, "p", "to be ready", cluster.PodReady)

	c.Kubectl(t, "-n", ns, "delete", "pod", "p", "--wait=false")
	c.AwaitGone(t, p)
	n.Await("all to be unmounted", func() bool { return len(volumeMounts(n)) == 0 })
	for _, file := range []string{path + "/file", local + "/file", local + "/below/here/file", scratch + "/file"} {
		if !contains(t, file, "kept in") {
			t.Errorf("the data in %s has changed", file)
		}
	}
}

// TestClaimsThatWait checks the events of pods whose claim is unbound, missing or bound to a volume of another node. The events must be
// those of a kubelet. Another pod is deleted while the agent is not running. The mounts of this pod must be unmounted.
func TestClaimsThatWait(t *testing.T) {
	c, n, ns := join(t)
	dir := n.Disk + "/data"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := func(name string) string {
		return pod(ns, name, "nodeName: "+n.Name+"\nvolumes: [{name: data, persistentVolumeClaim: {claimName: "+name+"}}]",
			"volumeMounts: [{name: data, mountPath: /data}]", "sleep")
	}
	elsewhere := disk{name: "elsewhere", source: "local: {path: " + dir + "}", here: true}
	late := disk{name: "late", source: "local: {path: " + dir + "}", here: true}
	t.Cleanup(func() {
		c.Kubectl(t, "delete", "pv", ns+"-late", ns+"-elsewhere", "--ignore-not-found", "--wait=false")
	})
	c.Apply(t, elsewhere.manifest(ns, "another", "elsewhere")+claim(ns, "elsewhere", ns+"-elsewhere", "Filesystem")+claim(ns, "late",
		ns+"-late", "Filesystem"))
	c.AwaitAny(t, "persistentvolumeclaims", ns, "elsewhere", &corev1.PersistentVolumeClaim{}, "to be bound", bound)
	c.Apply(t, mounts("late")+mounts("missing")+mounts("elsewhere"))
	describes(t, c, n, []string{"FailedMount", "error processing PVC " + ns + "/late: PVC is not bound"}, "-n", ns, "pod", "late")
	describes(t, c, n, []string{"FailedMount", `failed to fetch PVC from API server: persistentvolumeclaims "missing" not found`}, "-n", ns, "pod", "missing")
	describes(t, c, n, []string{"FailedMount", `MountVolume.NodeAffinity check failed for volume "` + ns + `-elsewhere" : no matching NodeSelectorTerms`}, "-n", ns, "pod", "elsewhere")

	c.Apply(t, late.manifest(ns, n.Name, "late"))
	p := c.AwaitReady(t, ns, "late")["late"]
	inside(n, ns, "late", "write", "/data/file", "kept")
	if got := volumeMounts(n); len(got) != 1 {
		t.Errorf("mounted: %q", got)
	}
	n.Kill()
	c.Kubectl(t, "-n", ns, "delete", "pod", "late", "--force", "--grace-period=0")
	n.Start()
	n.Await("what is left of the pod to be unmounted", func() bool { return len(volumeMounts(n)) == 0 })
	c.AwaitGone(t, p)
	if !contains(t, dir+"/file", "kept") {
		t.Error("the data is missing")
	}
}

func bound(o runtime.Object) bool {
	return o.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimBound
}
