package storage

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/mounts"
)

// TestISCSISpellings checks that all spellings of a disk have the same ID and the same path, and that other disks have others.
func TestISCSISpellings(t *testing.T) {
	d := newISCSI("/root", nil)
	identity := func(portal, iqn string, lun int32) string {
		s := &v1.ISCSIPersistentVolumeSource{TargetPortal: portal, IQN: iqn, Lun: lun}
		requireNoError(t, checkNames(&v1.PersistentVolumeSource{ISCSI: s}))
		v := Volume{Name: "v", Source: v1.PersistentVolumeSource{ISCSI: s}}
		return volumeID("", &v, d) + " " + d.StagePath(v)
	}
	seen := map[string]string{}
	for _, same := range [][]string{
		{"10.0.0.1", "10.0.0.1:3260", "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:3260"},
		{"fd00::1", "[fd00::1]", "[fd00::1]:3260", "FD00::1", "[fd00:0:0:0:0:0:0:1]:3260"},
		{"nas", "NAS:3260"}, {"10.0.0.1:3261"}, {"10.0.0.10"}, {"nas:x"},
	} {
		want := identity(same[0], "iqn.2026-01.example:disk", 0)
		for _, portal := range same {
			if got := identity(portal, "iqn.2026-01.example:disk", 0); got != want {
				t.Errorf("%s is %s, but %s is %s", portal, got, same[0], want)
			}
		}
		if other := seen[want]; other != "" {
			t.Errorf("%s and %s are the same disk", other, same[0])
		}
		seen[want] = same[0]
	}
	if a := identity("10.0.0.1", "iqn.2026-01.example:disk", 1); a == identity("10.0.0.1", "iqn.2026-01.example:disk", 0) {
		t.Error("two LUNs are the same disk")
	}
}

// TestPathsInNames checks that names which would lead to the path of another volume are rejected before they are recorded.
func TestPathsInNames(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	o := &objects{}
	good := v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.example:disk"}
	for name, change := range map[string]func(*v1.ISCSIPersistentVolumeSource){
		"interface": func(s *v1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "x/../iface-default" },
		"iqn": func(s *v1.ISCSIPersistentVolumeSource) {
			s.IQN = "iqn.2026-01.example:x/../10.0.0.1:3260-iqn.2026-01.example:disk"
		},
		"portal":     func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "x/../10.0.0.1" },
		"portals":    func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"10.0.0.2", "/"} },
		"option":     func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "--logout" },
		"no-iqn":     func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "" },
		"newline":    func(s *v1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "a\nb" },
		"unreadable": func(s *v1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "a\x1bb" },
	} {
		source := good
		change(&source)
		o.bound(name, v1.PersistentVolumeSource{ISCSI: &source})
	}
	o.bound("csi", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "x/../disk.example.com", VolumeHandle: "h"}})
	o.bound("csi-above", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "..", VolumeHandle: "h"}})
	k := newMounter(t, t.TempDir(), s, o, &life{})
	for name := range o.claims {
		p := podWith("p", name)
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		if err == nil || !strings.Contains(err.Error(), "failed to process volumes=["+name+"]") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if rows, err := s.Volumes(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("recorded: %+v, %v", rows, err)
	}
}

// An iSCSI disk for tests. It is a loop device, and the program iscsiadm is a fake that logs in to everything. At the end of the test, no
// portal may be logged in.
func newDisk(t *testing.T, root string) (d *iscsi, logouts *int) {
	t.Helper()
	d, logouts = newISCSI(root, nil), new(int)
	d.byPath = t.TempDir()
	sessions := map[string]bool{}
	d.admin = func(_ context.Context, args ...string) (string, error) {
		portal := args[slices.Index(args, "-p")+1]
		switch args[len(args)-1] {
		case "--login":
			sessions[portal] = true
		case "--logout":
			delete(sessions, portal)
			*logouts++
		}
		return "", nil
	}
	t.Cleanup(func() {
		if len(sessions) != 0 {
			t.Errorf("still logged in: %v", sessions)
		}
	})
	dev := loop(t, 16<<10)
	for _, portal := range []string{"10.0.0.1:3260", "[::ffff:10.0.0.1]:3260"} {
		requireNoError(t, os.Symlink(dev, filepath.Join(d.byPath, "ip-"+portal+"-iscsi-iqn.2026-01.example:disk-lun-0")))
	}
	return d, logouts
}

func withDisk(pod, portal string) *v1.Pod {
	p := podWith(pod)
	p.Spec.Volumes = []v1.Volume{{Name: "d", VolumeSource: v1.VolumeSource{
		ISCSI: &v1.ISCSIVolumeSource{TargetPortal: portal, IQN: "iqn.2026-01.example:disk"},
	}}}
	return p
}

// TestTwoSpellingsOfADisk checks that a disk stays mounted and logged in until its last pod is gone, however each pod spells it. The agent
// restarts before each pod. The second round continues with the rows of an earlier version, which has recorded each spelling as a disk of
// its own.
func TestTwoSpellingsOfADisk(t *testing.T) {
	for _, old := range []bool{false, true} {
		root, s := t.TempDir(), openStore(t, t.TempDir())
		d, logouts := newDisk(t, root)
		start := func() *Mounter {
			k := newMounter(t, root, s, nil)
			k.cfg.Drivers = []Driver{d}
			return k
		}
		var k *Mounter
		pods := []*v1.Pod{withDisk("a", "10.0.0.1"), withDisk("b", "10.0.0.1:3260"), withDisk("c", "::ffff:10.0.0.1")}
		for _, p := range pods {
			k = start()
			path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
			requireNoError(t, err)
			requireNoError(t, os.WriteFile(path+"/file", []byte(p.Name), 0o600))
		}
		if old {
			writeRowsOfEarlierVersion(t, s, pods)
			k = start()
		}
		staged := d.StagePath(Volume{Source: v1.PersistentVolumeSource{ISCSI: persistentISCSI(pods[0], pods[0].Spec.Volumes[0].ISCSI)}})
		for i, p := range pods {
			if m, err := mounts.FindTopmost(staged); err != nil || m == nil || *logouts != 0 {
				t.Fatalf("before pod %s ends: %v, %v, %d logouts", p.Name, m, err, *logouts)
			}
			requireNoError(t, k.TearDown(t.Context(), p.UID))
			if i == 0 {
				requireNoError(t, k.Sweep(t.Context()))
			}
		}
		if m, err := mounts.FindTopmost(staged); err != nil || m != nil || *logouts == 0 || len(k.InUse()) != 0 {
			t.Errorf("after the last pod: %v, %v, %d logouts, in use: %q", m, err, *logouts, k.InUse())
		}
		s.Close()
	}
}

// writeRowsOfEarlierVersion changes the rows of the ledger to those that an earlier version has written for the pods.
func writeRowsOfEarlierVersion(t *testing.T, s *store.Store, pods []*v1.Pod) {
	t.Helper()
	rows, err := s.Volumes(t.Context())
	requireNoError(t, err)
	for _, row := range rows {
		for _, p := range pods {
			if row.Pod != "" && row.Pod != string(p.UID) {
				continue
			}
			spelled := row
			spelled.Volume = "kubernetes.io/iscsi/" + p.Spec.Volumes[0].ISCSI.TargetPortal + ":iqn.2026-01.example:disk:0"
			spelled.Data = []byte(strings.ReplaceAll(string(row.Data), row.Volume, spelled.Volume))
			requireNoError(t, s.RemoveVolume(t.Context(), row.VolumeKey))
			requireNoError(t, s.PutVolume(t.Context(), spelled))
		}
	}
}

// A fullDisk is a ledger that cannot be written.
type fullDisk struct{ *store.Store }

func (fullDisk) PutVolume(context.Context, store.Volume) error { return errors.New("the disk is full") }
func (fullDisk) RemoveVolume(context.Context, store.VolumeKey) error {
	return errors.New("the disk is full")
}

// TestRowsOfEarlierVersionOnAFullDisk checks that an agent starts with the rows of an earlier version although it cannot rewrite them. It
// knows the disks by their new IDs. The next start rewrites the rows.
func TestRowsOfEarlierVersionOnAFullDisk(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	d, logouts := newDisk(t, root)
	k := newMounter(t, root, s, nil)
	k.cfg.Drivers = []Driver{d}
	p := withDisk("a", "10.0.0.1")
	_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	want := maps.Clone(k.rows)
	writeRowsOfEarlierVersion(t, s, []*v1.Pod{p})
	for _, l := range []Ledger{fullDisk{s}, s} {
		k = newMounter(t, root, l, nil)
		for key := range want {
			if r, ok := k.rows[key]; !ok || r.Volume.ID != key.Volume || len(k.rows) != len(want) {
				t.Errorf("%v is missing in %v", key, k.rows)
			}
		}
	}
	rows, err := s.Volumes(t.Context())
	requireNoError(t, err)
	for _, row := range rows {
		var r record
		if err := json.Unmarshal(row.Data, &r); err != nil || r.Volume.ID != row.Volume {
			t.Errorf("%v: %+v, %v", row.VolumeKey, r, err)
		}
	}
	k.cfg.Drivers = []Driver{d}
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	if rows, err := s.Volumes(t.Context()); err != nil || len(rows) != 0 || *logouts == 0 {
		t.Errorf("%v, %v, %d logouts", rows, err, *logouts)
	}
}

// TestOneDirectoryOfTwoVolumes checks that two PersistentVolumes with one local path are one volume: with ReadWriteOncePod the second pod
// waits for the end of the first. The same applies if an earlier version has recorded the first one by its name.
func TestOneDirectoryOfTwoVolumes(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		root, dir, s := t.TempDir(), t.TempDir(), openStore(t, t.TempDir())
		defer s.Close()
		o := &objects{}
		for _, name := range []string{"a", "b"} {
			_, pv := o.bound(name, v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: dir}})
			pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		}
		k := newMounter(t, root, s, o)
		a, b := podWith("a", "a"), podWith("b", "b")
		_, err := k.SetUp(t.Context(), a, &a.Spec.Volumes[0], "")
		requireNoError(t, err)
		if earlier {
			rows, err := s.Volumes(t.Context())
			requireNoError(t, err)
			for _, row := range rows {
				old := row
				old.Volume = "kubernetes.io/local-volume/pv-a"
				old.Data = []byte(strings.ReplaceAll(string(row.Data), row.Volume, old.Volume))
				requireNoError(t, s.RemoveVolume(t.Context(), row.VolumeKey))
				requireNoError(t, s.PutVolume(t.Context(), old))
			}
			k = newMounter(t, root, s, o)
		}
		_, err = k.SetUp(t.Context(), b, &b.Spec.Volumes[0], "")
		if err == nil || !strings.Contains(err.Error(), "already in use by another pod") {
			t.Errorf("earlier %v: %v", earlier, err)
		}
		path, err := k.SetUp(t.Context(), a, &a.Spec.Volumes[0], "")
		requireNoError(t, err)
		requireNoError(t, os.WriteFile(filepath.Join(path, "data"), nil, 0o600))
		requireNoError(t, k.TearDown(t.Context(), a.UID))
		path, err = k.SetUp(t.Context(), b, &b.Spec.Volumes[0], "")
		requireNoError(t, err)
		if _, err := os.Stat(filepath.Join(path, "data")); err != nil {
			t.Error(err)
		}
		requireNoError(t, k.TearDown(t.Context(), b.UID))
		if rows, err := s.Volumes(t.Context()); err != nil || len(rows) != 0 {
			t.Errorf("left: %v, %v", rows, err)
		}
	}
}

// TestOneDirectoryBeforeTheUpdate checks that two pods which have rows for one ReadWriteOncePod volume start again. An earlier version has
// let both start, because their PersistentVolumes were different volumes. A third pod must wait.
func TestOneDirectoryBeforeTheUpdate(t *testing.T) {
	root, dir, s, o := t.TempDir(), t.TempDir(), openStore(t, t.TempDir()), &objects{}
	defer s.Close()
	pods := []*v1.Pod{podWith("a", "a"), podWith("b", "b"), podWith("c", "b")}
	up := func(k *Mounter, p *v1.Pod) error {
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		return err
	}
	before := newMounter(t, root, s, o)
	for _, p := range pods[:2] {
		o.bound(p.Name, v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: dir}})
		requireNoError(t, up(before, p))
	}
	for _, pv := range o.volumes {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	k := newMounter(t, root, s, o)
	requireNoError(t, up(k, pods[0]))
	requireNoError(t, up(k, pods[1]))
	if err := up(k, pods[2]); err == nil || !strings.Contains(err.Error(), "already in use by another pod") {
		t.Error(err)
	}
	requireNoError(t, errors.Join(k.TearDown(t.Context(), pods[0].UID), k.TearDown(t.Context(), pods[1].UID)))
	requireNoError(t, up(k, pods[2]))
	requireNoError(t, k.TearDown(t.Context(), pods[2].UID))
}

// TestDiskOfAnUnrecordedPod checks that a disk stays mounted while a pod has it mounted, also if the ledger has no row for this pod.
// After that, the disk is unmounted.
func TestDiskOfAnUnrecordedPod(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	d, logouts := newDisk(t, root)
	k := newMounter(t, root, s, nil)
	k.cfg.Drivers = []Driver{d}
	p, gone := withDisk("a", "10.0.0.1"), root+"/pods/uid-gone/volumes/kubernetes.io~iscsi/d"
	path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	requireNoError(t, bindMount(t.Context(), path, gone, false, nil))
	if err := k.TearDown(t.Context(), p.UID); err == nil || !strings.Contains(err.Error(), "still mounted by other references ["+gone+"]") ||
		*logouts != 0 {
		t.Errorf("%v, %d logouts", err, *logouts)
	}
	if err := k.Sweep(t.Context()); err == nil || *logouts != 0 {
		t.Errorf("%v, %d logouts while the disk is mounted", err, *logouts)
	}
	requireNoError(t, removeBindMount(gone))
	requireNoError(t, k.Sweep(t.Context()))
	if *logouts != 1 || len(k.InUse()) != 0 {
		t.Errorf("%d logouts, in use: %q", *logouts, k.InUse())
	}
}

// TestDisksOfALostDatabase checks that a disk whose records were lost stays mounted while a pod uses it. After that, it is unmounted, and
// the target is logged out. The same applies to a disk without a pod, and to one that is not mounted any more.
func TestDisksOfALostDatabase(t *testing.T) {
	for _, mounted := range []bool{true, false} {
		root := t.TempDir()
		d, logouts := newDisk(t, root)
		start := func() *Mounter {
			s := openStore(t, t.TempDir())
			t.Cleanup(func() { s.Close() })
			k := newMounter(t, root, s, nil)
			k.cfg.Drivers = []Driver{d}
			return k
		}
		p := withDisk("a", "10.0.0.1")
		path, err := start().SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		k := start()
		for range 2 {
			if err := k.Sweep(t.Context()); err != nil || *logouts != 0 || len(k.InUse()) != 1 || !k.HasPod(p.UID) {
				t.Errorf("%v, %d logouts, in use: %q", err, *logouts, k.InUse())
			}
		}
		if !mounted {
			staged := d.StagePath(Volume{Source: v1.PersistentVolumeSource{ISCSI: persistentISCSI(p, p.Spec.Volumes[0].ISCSI)}})
			requireNoError(t, removeBindMount(path))
			requireNoError(t, unmountDevice(staged))
			requireNoError(t, os.Mkdir(staged, dirMode))
			k = start()
		}
		requireNoError(t, k.TearDown(t.Context(), p.UID))
		requireNoError(t, k.Sweep(t.Context()))
		if *logouts != 1 || len(k.InUse()) != 0 {
			t.Errorf("%d logouts, in use: %q", *logouts, k.InUse())
		}
	}
}

// TestOnePathForTwoVolumes checks that a volume is not staged at the path of another one, for example after a PersistentVolume was replaced
// by another with the same name.
func TestOnePathForTwoVolumes(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	k := newMounter(t, t.TempDir(), s, nil)
	first, second := store.VolumeKey{Volume: "1", Path: "/staged"}, store.VolumeKey{Volume: "2", Path: "/staged"}
	requireNoError(t, k.putRow(t.Context(), first, record{}))
	if err := k.putRow(t.Context(), second, record{}); err == nil || !strings.Contains(err.Error(), "volume 1 is still mounted at /staged") {
		t.Error(err)
	}
	requireNoError(t, k.putRow(t.Context(), first, record{}))
	requireNoError(t, k.deleteRow(t.Context(), first))
	requireNoError(t, k.putRow(t.Context(), second, record{}))
}

// TestRowsWithOnePath checks rows of an earlier version, which has staged two volumes at one path. The path stays mounted while a pod uses
// one of the volumes. Then both rows are removed.
func TestRowsWithOnePath(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	d, logouts := newDisk(t, root)
	start := func() *Mounter {
		k := newMounter(t, root, s, nil)
		k.cfg.Drivers = []Driver{d}
		return k
	}
	p := withDisk("a", "10.0.0.1")
	_, err := start().SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	rows, err := s.Volumes(t.Context())
	requireNoError(t, err)
	for _, row := range rows {
		if row.Pod == "" {
			row.Volume = "kubernetes.io/iscsi/10.0.0.1:3260:other:0"
			row.Data = []byte(strings.ReplaceAll(string(row.Data), "iqn.2026-01.example:disk", "other"))
			requireNoError(t, s.PutVolume(t.Context(), row))
		}
	}
	k := start()
	if err := k.Sweep(t.Context()); err == nil || *logouts != 0 || len(k.rows) != 3 {
		t.Errorf("%v, %d logouts, %d rows", err, *logouts, len(k.rows))
	}
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	requireNoError(t, k.Sweep(t.Context()))
	if *logouts == 0 || len(k.rows) != 0 {
		t.Errorf("%d logouts, %d rows", *logouts, len(k.rows))
	}
}
