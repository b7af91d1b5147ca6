package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// TestLocalVolumes checks that a pod's local volumes have the same paths as with a kubelet. After the unmount, the data is kept and nothing
// else is left.
func TestLocalVolumes(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	requireNoError(t, os.WriteFile(disk+"/kept", []byte("x"), 0o600))
	requireNoError(t, os.Symlink("/etc/passwd", disk+"/link"))
	passwd, err := os.Stat("/etc/passwd")
	requireNoError(t, err)
	o, s := &objects{}, openStore(t, t.TempDir())
	defer s.Close()
	o.bound("dir", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: disk}})
	o.bound("path", v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: disk + "/made"}})
	k := newMounter(t, root, s, o)
	p := podWith("p", "dir", "path")
	gid := int64(4321)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	for range 2 {
		path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		if want := root + "/pods/uid-p/volumes/kubernetes.io~local-volume/pv-dir"; err != nil || path != want {
			t.Fatalf("the path is %s: %v", path, err)
		}
		if b, err := os.ReadFile(path + "/kept"); err != nil || string(b) != "x" {
			t.Errorf("%q: %v", b, err)
		}
	}
	requireNoError(t, syscall.Unmount(root+"/pods/uid-p/volumes/kubernetes.io~local-volume/pv-dir", 0)) // an administrator unmounts the volume
	path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	if b, rerr := os.ReadFile(path + "/kept"); err != nil || rerr != nil || string(b) != "x" {
		t.Errorf("after an unmount by an administrator: %q: %v, %v", b, err, rerr)
	}
	path, err = k.SetUp(t.Context(), p, &p.Spec.Volumes[1], "")
	if fi, serr := os.Stat(disk + "/made"); err != nil || serr != nil || !fi.IsDir() || path != disk+"/made" {
		t.Errorf("the path is %s: %v, %v", path, err, serr)
	}
	for name, mode := range map[string]os.FileMode{".": 0o770 | os.ModeSetgid, "kept": 0o660} {
		fi, err := os.Stat(filepath.Join(disk, name))
		requireNoError(t, err)
		if int64(fi.Sys().(*syscall.Stat_t).Gid) != gid || fi.Mode()&(mode.Perm()|os.ModeSetgid) != mode {
			t.Errorf("%s: %s of group %d", name, fi.Mode(), fi.Sys().(*syscall.Stat_t).Gid)
		}
	}
	if now, err := os.Stat("/etc/passwd"); err != nil || now.Mode() != passwd.Mode() ||
		now.Sys().(*syscall.Stat_t).Gid != passwd.Sys().(*syscall.Stat_t).Gid {
		t.Error("a link was followed")
	}
	if got, ro, _, err := k.MountPath(p, &p.Spec.Volumes[0]); err != nil || ro || !strings.HasSuffix(got, "pv-dir") {
		t.Error(got, ro, err)
	}
	k = newMounter(t, root, s, nil) // the agent restarts without the API server
	if !k.HasPod(p.UID) {
		t.Error("the ledger has no volume")
	}
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	if m, err := mounts.FindTopmost(root + "/pods/uid-p/volumes/kubernetes.io~local-volume/pv-dir"); err != nil || m != nil {
		t.Errorf("still mounted: %v %v", m, err)
	}
	if b, err := os.ReadFile(disk + "/kept"); err != nil || string(b) != "x" {
		t.Errorf("the data was lost: %v", err)
	}
	if _, err := os.Stat(disk + "/made"); err != nil {
		t.Error("a path of the host was removed")
	}
}

// loop creates a block device with the given size in KiB.
func loop(t *testing.T, kib int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	requireNoError(t, os.WriteFile(file, nil, 0o600))
	requireNoError(t, os.Truncate(file, kib<<10))
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this host has no loop devices: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { requireNoError(t, exec.Command("losetup", "--detach", dev).Run()) })
	return dev
}

// TestGroupOfSharedLocalVolume checks that the files of a local volume keep the group of its first pod while this pod uses them, also if
// another pod wants another group and after a restart of the agent. The other pod gets an event. Later, a pod alone gets its group.
func TestGroupOfSharedLocalVolume(t *testing.T) {
	root, dir, s := t.TempDir(), t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	requireNoError(t, os.WriteFile(dir+"/file", nil, 0o600))
	o, events := &objects{}, make(chan string, 9)
	o.bound("c", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: dir}})
	start := func() *Mounter {
		k := newMounter(t, root, s, o)
		k.cfg.Event = noting(events)
		return k
	}
	with := func(name string, gid int64) *v1.Pod {
		p := podWith(name, "c")
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
		return p
	}
	k := start()
	a, b, c := with("a", 1000), with("b", 2000), with("c", 1000)
	check := func(p *v1.Pod, want uint32, event string) {
		t.Helper()
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		fi, err := os.Stat(dir + "/file")
		requireNoError(t, err)
		got := ""
		if len(events) > 0 {
			got = <-events
		}
		if gid := fi.Sys().(*syscall.Stat_t).Gid; gid != want || got != event {
			t.Errorf("%s: group %d, event %q", p.Name, gid, got)
		}
	}
	const event = "Warning AlreadyMountedVolume: The requested fsGroup is 2000, but the volume pv-c has GID 1000. The volume may not be shareable."
	check(a, 1000, "")
	check(b, 1000, event)
	check(c, 1000, "")
	k = start()
	check(b, 1000, event)
	check(a, 1000, "")
	requireNoError(t, k.TearDown(t.Context(), a.UID))
	requireNoError(t, k.TearDown(t.Context(), c.UID))
	requireNoError(t, k.TearDown(t.Context(), b.UID))
	check(b, 2000, "")
	requireNoError(t, k.TearDown(t.Context(), b.UID))
}

// TestGroupOfPodsThatStartTogether checks that a pod which has started together with the first pod of a local volume, and wants another
// group, does not change the group of the files after a restart of the agent either.
func TestGroupOfPodsThatStartTogether(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	requireNoError(t, os.WriteFile(dir+"/file", nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		s, o := openStore(t, root), &objects{}
		defer s.Close()
		o.bound("c", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: dir}})
		up := func(k *Mounter, name string, gid int64) error {
			p := podWith(name, "c")
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
			_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
			return err
		}
		k, both, ended := newMounter(t, root, s, o), make(chan struct{}), make(chan error)
		k.setGroup = func(ctx context.Context, dir string, gid int, lazy bool) error {
			<-both
			return SetGroup(ctx, dir, gid, lazy)
		}
		go func() { ended <- up(k, "a", 1000) }()
		synctest.Wait()
		go func() { ended <- up(k, "b", 2000) }()
		synctest.Wait()
		close(both)
		requireNoError(t, errors.Join(<-ended, <-ended))
		k = newMounter(t, root, s, o)
		requireNoError(t, up(k, "b", 2000))
		fi, err := os.Stat(dir + "/file")
		requireNoError(t, err)
		if gid := fi.Sys().(*syscall.Stat_t).Gid; gid != 1000 {
			t.Errorf("group %d", gid)
		}
		requireNoError(t, errors.Join(k.TearDown(t.Context(), "uid-a"), k.TearDown(t.Context(), "uid-b")))
	})
}

// TestLocalDisk checks that a disk is formatted once, mounted once for two pods, and unmounted with the second pod. For a block volume, the
// container gets the device.
func TestLocalDisk(t *testing.T) {
	root, o, s := t.TempDir(), &objects{}, openStore(t, t.TempDir())
	defer s.Close()
	dev, raw := loop(t, 16<<10), loop(t, 64)
	o.bound("disk", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: dev}})
	_, pv := o.bound("raw", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: raw}})
	mode := v1.PersistentVolumeBlock
	pv.Spec.VolumeMode = &mode
	k := newMounter(t, root, s, o)
	staged := root + "/plugins/kubernetes.io/local-volume/mounts/pv-disk"
	up := func(name string) string {
		p := podWith(name, "disk")
		path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		return path
	}
	requireNoError(t, os.WriteFile(up("a")+"/file", []byte("x"), 0o600))
	if b, err := os.ReadFile(up("b") + "/file"); err != nil || string(b) != "x" {
		t.Errorf("%q: %v", b, err)
	}
	requireNoError(t, k.TearDown(t.Context(), "uid-a"))
	if m, err := mounts.FindTopmost(staged); err != nil || m == nil || m.FSType != "ext4" {
		t.Errorf("%+v: %v", m, err)
	}
	held, err := os.Open(staged)
	requireNoError(t, err)
	if err := k.TearDown(t.Context(), "uid-b"); err == nil || !strings.Contains(err.Error(), "UnmountDevice failed") ||
		!k.HasPod("uid-b") && len(k.InUse()) == 0 {
		t.Errorf("a disk that is in use is unmounted: %v", err)
	}
	requireNoError(t, held.Close())
	requireNoError(t, k.Sweep(t.Context()))
	if m, err := mounts.FindTopmost(staged); err != nil || m != nil || len(k.InUse()) != 0 {
		t.Errorf("still mounted: %+v, %v, %q", m, err, k.InUse())
	}
	if b, err := os.ReadFile(up("c") + "/file"); err != nil || string(b) != "x" {
		t.Errorf("the disk was formatted again: %q: %v", b, err)
	}
	requireNoError(t, k.TearDown(t.Context(), "uid-c"))

	requireNoError(t, os.WriteFile(up("d")+"/file", []byte("y"), 0o600))
	lost := openStore(t, t.TempDir()) // the database was damaged and created again
	defer lost.Close()
	k = newMounter(t, root, lost, o)
	requireNoError(t, k.Sweep(t.Context()))
	if m, err := mounts.FindTopmost(staged); err != nil || m == nil {
		t.Errorf("unmounted under a pod: %v", err)
	}
	requireNoError(t, removeBindMount(root+"/pods/uid-d/volumes/kubernetes.io~local-volume/pv-disk"))
	requireNoError(t, k.Sweep(t.Context()))
	if m, err := mounts.FindTopmost(staged); err != nil || m != nil {
		t.Errorf("mounted for ever: %v", err)
	}

	p := podWith("p", "raw")
	link, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	if want := root + "/pods/uid-p/volumeDevices/kubernetes.io~local-volume/pv-raw"; link != want {
		t.Errorf("the link is %s", link)
	}
	if got, _, _, err := k.MountPath(p, &p.Spec.Volumes[0]); err != nil || got != raw {
		t.Errorf("the device is %s: %v", got, err)
	}
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	if _, err := os.Lstat(link); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestRefusals checks that the errors about volumes that cannot be mounted are the same as in a kubelet.
func TestRefusals(t *testing.T) {
	root, o, s := t.TempDir(), &objects{}, openStore(t, t.TempDir())
	defer s.Close()
	source := v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}}
	set := func(name string, change func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)) {
		c, pv := o.bound(name, source)
		change(c, pv)
	}
	block := v1.PersistentVolumeBlock
	set("pending", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimPending })
	set("lost", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimLost })
	set("unnamed", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.VolumeName = "" })
	set("ending", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
		c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	})
	set("nopv", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.VolumeName = "none" })
	set("unbound", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil })
	set("others", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "x" })
	set("block", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.VolumeMode = &block })
	set("elsewhere", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpExists}}}}}}
	})
	set("absent", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/nowhere"}}
	})
	set("cinder", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{}}
	})
	set("p-e", func(*v1.PersistentVolumeClaim, *v1.PersistentVolume) {})
	k := newMounter(t, root, s, o)
	for name, want := range map[string]string{
		"pending": "error processing PVC default/pending: PVC is not bound", "lost": "its PersistentVolume is lost", "unnamed": "PVC has empty pvc.Spec.VolumeName",
		"ending": "error processing PVC default/ending: PVC is being deleted", "gone": `failed to fetch PVC from API server: persistentvolumeclaims "gone" not found`,
		"nopv": `failed to fetch PV none from API server: persistentvolumes "none" not found`, "unbound": "nil pv.Spec.ClaimRef", "others": "does not point to claim.UID claim-others",
		"block": "volume block has volumeMode Block, but is specified in volumeMounts", "elsewhere": `MountVolume.NodeAffinity check failed for volume "pv-elsewhere" : no matching NodeSelectorTerms`,
		"absent": `MountVolume.SetUp failed for volume "pv-absent" : path "/nowhere" does not exist`, "cinder": "no volume plugin matched name: kubernetes.io/cinder",
	} {
		p := podWith("p", name)
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: name}}
		if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.volumes["pv-absent"].Spec.VolumeMode = &block
	device := podWith("p", "absent")
	var told interface{ EventReason() string }
	if _, err := k.SetUp(t.Context(), device, &device.Spec.Volumes[0], ""); !errors.As(err, &told) ||
		told.EventReason() != "FailedMapVolume" || !strings.Contains(err.Error(), `MapVolume.MapPodDevice failed for volume "pv-absent"`) {
		t.Error(err)
	}
	requireNoError(t, k.TearDown(t.Context(), device.UID))
	p := podWith("p")
	e := &v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	if _, err := k.SetUp(t.Context(), p, e, ""); err == nil ||
		!strings.Contains(err.Error(), "PVC default/p-e was not created for pod default/p (pod is not owner)") {
		t.Error(err)
	}
	yes := true
	o.claims["p-e"].OwnerReferences = []metav1.OwnerReference{{UID: p.UID, Controller: &yes}}
	if _, err := k.SetUp(t.Context(), p, e, ""); err != nil {
		t.Error(err)
	}
	requireNoError(t, k.TearDown(t.Context(), p.UID))

	o.volumes["pv-pending"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	o.claims["pending"].Status.Phase = v1.ClaimBound
	one, two := podWith("one", "pending"), podWith("two", "pending")
	_, err := k.SetUp(t.Context(), one, &one.Spec.Volumes[0], "")
	requireNoError(t, err)
	if _, err := k.SetUp(t.Context(), two, &two.Spec.Volumes[0], ""); err == nil ||
		!strings.Contains(err.Error(), "uses the ReadWriteOncePod access mode and is already in use by another pod") {
		t.Error(err)
	}
	requireNoError(t, k.TearDown(t.Context(), one.UID))
	_, err = k.SetUp(t.Context(), two, &two.Spec.Volumes[0], "")
	requireNoError(t, err)
	requireNoError(t, k.TearDown(t.Context(), two.UID))
}

// TestMountedVolumeStays checks that a pod keeps the volume that it has mounted, also after a restart of the agent, if the claim or its
// PersistentVolume changes or disappears. A new pod does not get this volume.
func TestMountedVolumeStays(t *testing.T) {
	elsewhere := t.TempDir()
	for name, change := range map[string]func(o *objects, c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume){
		"lost": func(_ *objects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimLost },
		"pending": func(_ *objects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.Status.Phase = v1.ClaimPending
		},
		"unnamed": func(_ *objects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.VolumeName = "" },
		"ending": func(_ *objects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		},
		"gone":    func(o *objects, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { delete(o.claims, "data") },
		"nopv":    func(o *objects, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { delete(o.volumes, "pv-data") },
		"unbound": func(_ *objects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"again":   func(_ *objects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.UID = "another" },
		"elsewhere": func(_ *objects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpExists}}}}}}
		},
		"rebound": func(o *objects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			_, other := o.bound("other", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: elsewhere}})
			c.Spec.VolumeName, other.Spec.ClaimRef.UID = other.Name, c.UID
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, o, s := t.TempDir(), &objects{}, openStore(t, t.TempDir())
			defer s.Close()
			c, pv := o.bound("data", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}})
			k, p, fresh := newMounter(t, root, s, o), podWith("p", "data"), podWith("fresh", "data")
			path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
			requireNoError(t, err)
			change(o, c, pv)
			for _, when := range []string{"running", "restarted"} {
				if got, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err != nil || got != path {
					t.Errorf("%s: %s: %v", when, got, err)
				}
				if got, _, _, err := k.MountPath(p, &p.Spec.Volumes[0]); err != nil || got != path {
					t.Errorf("%s: the container gets %s: %v", when, got, err)
				}
				if got, err := k.SetUp(t.Context(), fresh, &fresh.Spec.Volumes[0], ""); err == nil && name != "rebound" {
					t.Errorf("%s: a new pod gets %s", when, got)
				}
				requireNoError(t, k.TearDown(t.Context(), fresh.UID))
				k = newMounter(t, root, s, o)
			}
			requireNoError(t, removeBindMount(path)) // as after a reboot
			k = newMounter(t, root, s, o)
			if got, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err != nil || (got == path) == (name == "rebound") {
				t.Errorf("after a reboot: %s: %v", got, err)
			}
			requireNoError(t, k.TearDown(t.Context(), p.UID))
			if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil && name != "rebound" {
				t.Error("the pod gets a volume after it has released the former one")
			}
			requireNoError(t, k.TearDown(t.Context(), p.UID))
			requireNoError(t, k.Sweep(t.Context()))
		})
	}
}

// TestHungServer checks that a pod waits as long as with a kubelet if the server of its volume does not respond. Other pods do not wait. A
// hanging mount is not repeated before it has ended.
func TestHungServer(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, root)
		defer s.Close()
		o := &objects{}
		o.bound("nfs", v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "10.0.0.1", Path: "/export"}})
		var calls atomic.Int32
		answer := make(chan struct{})
		n := nfs{mount: func(_ context.Context, source, target, fsType string, options []string) error {
			calls.Add(1)
			if source != "10.0.0.1:/export" || fsType != "nfs" || !strings.HasSuffix(target, "/pods/uid-p/volumes/kubernetes.io~nfs/pv-nfs") || fmt.Sprint(options) != "[soft]" {
				t.Errorf("mount %s at %s as %s with %q", source, target, fsType, options)
			}
			<-answer
			return nil
		}, unmount: func(context.Context, string) error { return nil }}
		o.volumes["pv-nfs"].Spec.MountOptions = []string{"soft"}
		k := newMounter(t, root, s, o)
		k.cfg.Drivers = []Driver{n, localDriver{root}}
		p := podWith("p", "nfs")
		for range 2 {
			began := time.Now()
			if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil ||
				!strings.Contains(err.Error(),
					"unmounted volumes=[nfs], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition") ||
				time.Since(began) != mountTime {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		}
		if got := k.SlowCalls(p.UID); len(got) != 1 || !strings.HasPrefix(got[0],
			"volume kubernetes.io/nfs/pv-nfs has not been mounted or unmounted for 4m") || len(k.SlowCalls("other")) != 0 {
			t.Errorf("%q", got)
		}
		other := podWith("other", "dir")
		o.bound("dir", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}})
		_, err := k.SetUp(t.Context(), other, &other.Spec.Volumes[0], "")
		requireNoError(t, err)
		requireNoError(t, k.TearDown(t.Context(), other.UID))
		if calls.Load() != 1 || !k.HasPod(p.UID) {
			t.Errorf("mounted %d times", calls.Load())
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := k.TearDown(soon, p.UID); err == nil {
			t.Error("the volume is unmounted during its mount")
		}
		close(answer)
		requireNoError(t, k.TearDown(t.Context(), p.UID))
		if k.HasPod(p.UID) || len(k.InUse()) != 0 {
			t.Error("volumes are left")
		}
	})
}

// A remote is a driver whose volume stops responding.
type remote struct {
	nfs
	gone *atomic.Bool
	hang chan struct{}
}

func (r remote) Publish(_ context.Context, _ Volume, _ string, u Use) error {
	return os.MkdirAll(u.Path, 0o755)
}

func (r remote) Probe(string) error {
	if r.gone.Load() {
		<-r.hang
	}
	return nil
}

// TestVolumeThatStopsToAnswer checks that an unresponsive volume is reported before a container's start would hang. A restarted agent
// reports it too. The pod can be removed.
func TestVolumeThatStopsToAnswer(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, root)
		defer s.Close()
		o, gone, hang := &objects{}, &atomic.Bool{}, make(chan struct{})
		defer close(hang)
		o.bound("nfs", v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "10.0.0.1", Path: "/export"}})
		k := newMounter(t, root, s, o)
		k.cfg.Drivers = []Driver{remote{newNFS(), gone, hang}}
		p := podWith("p", "nfs")
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		gone.Store(true)
		for i := range 3 {
			if i == 2 {
				k = newMounter(t, root, s, o)
				k.cfg.Drivers = []Driver{remote{newNFS(), gone, hang}}
			}
			began := time.Now()
			if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil ||
				!strings.Contains(err.Error(), `volume "pv-nfs" does not answer`) || time.Since(began) != probeTime {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		}
		requireNoError(t, k.TearDown(t.Context(), p.UID))
		if k.HasPod(p.UID) {
			t.Error("the volume is still mounted")
		}
	})
}

// TestExports checks that an invalid NFS source is not passed to the mount program.
func TestExports(t *testing.T) {
	for in, want := range map[v1.NFSVolumeSource]string{
		{Server: "s", Path: "/a"}: "s:/a", {Server: "fd00::1", Path: "/a"}: "[fd00::1]:/a", {Server: "-o", Path: "/a"}: "", {Server: "s", Path: "a"}: "", {Path: "/a"}: "",
	} {
		if got, err := nfsSource(&in); got != want || (err != nil) != (want == "") {
			t.Errorf("%+v: %q, %v", in, got, err)
		}
	}
}

// TestISCSI checks that iscsiadm is called with the same arguments as in Kubernetes. After the unmount of a target's last disk, the driver
// logs out of the target. No error contains credentials.
func TestISCSI(t *testing.T) {
	root, by := t.TempDir(), t.TempDir()
	dev := loop(t, 64)
	d := newISCSI(root, &objects{})
	d.byPath = by
	var calls []string
	d.admin = func(_ context.Context, args ...string) (string, error) {
		calls = append(calls, strings.Join(args, " "))
		return "", nil
	}
	v := Volume{ID: "x", Name: "pv", Block: true, Source: v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{
		TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.example:disk", Lun: 3, SessionCHAPAuth: true, SecretRef: &v1.SecretReference{Name: "chap"},
	}}}
	requireNoError(t, os.Symlink(dev, by+"/ip-10.0.0.1:3260-iscsi-iqn.2026-01.example:disk-lun-3"))
	u := Use{Pod: podWith("p"), Path: root + "/pods/uid-p/volumeDevices/kubernetes.io~iscsi/pv"}
	staged := d.StagePath(v)
	requireNoError(t, d.Stage(t.Context(), v, staged, u))
	requireNoError(t, d.Publish(t.Context(), v, staged, u))
	if got, err := resolveDevice(u.Path); err != nil || got != dev {
		t.Errorf("%s: %v", got, err)
	}
	const node = "-m node -p 10.0.0.1:3260 -T iqn.2026-01.example:disk -I default "
	for _, want := range []string{
		"-m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o new", "-m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default --discover",
		node + "-o update -n node.session.auth.authmethod -v CHAP", node + "-o update -n node.session.auth.password -v p", node + "--login", node + "-o update -n node.startup -v manual",
	} {
		if !strings.Contains(strings.Join(calls, "\n")+"\n", want+"\n") {
			t.Errorf("not called: %s\n%s", want, strings.Join(calls, "\n"))
		}
	}
	second := v
	source := *v.Source.ISCSI
	source.Lun = 4
	second.Source.ISCSI = &source
	requireNoError(t, os.Symlink(dev, by+"/ip-10.0.0.1:3260-iscsi-iqn.2026-01.example:disk-lun-4"))
	requireNoError(t, d.Stage(t.Context(), second, d.StagePath(second), u))
	calls = nil
	requireNoError(t, d.Unpublish(t.Context(), v, "uid-p", u.Path))
	requireNoError(t, d.Unstage(t.Context(), v, staged))
	if len(calls) != 0 {
		t.Errorf("logged out while another disk is used: %q", calls)
	}
	requireNoError(t, d.Unstage(t.Context(), second, d.StagePath(second)))
	if fmt.Sprint(calls) != fmt.Sprint([]string{node + "--logout", node + "-o delete"}) {
		t.Errorf("%q", calls)
	}
	d.admin = func(ctx context.Context, args ...string) (string, error) {
		return programOutput(ctx, "islet-no-such-program", args...)
	}
	if err := d.Stage(t.Context(), v, staged, u); err == nil || !strings.Contains(err.Error(), "is not on this host") ||
		!strings.Contains(err.Error(), "install open-iscsi") {
		t.Error(err)
	}
}
