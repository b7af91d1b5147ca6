package csi

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/edge/store"
)

// TestFind checks that Find returns the staged and published volumes of all types, with the data that an unmount needs.
func TestFind(t *testing.T) {
	w := newWorld(t)
	w.register()
	w.object.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{
		storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent,
	}
	files, block, inline := volume(), volume(), volume()
	files.Label = "system_u:object_r:container_file_t:s0:c1,c2"
	block.Block, block.Name, block.Source.CSI.VolumeHandle = true, "disk", "h/2"
	inline.Inline, inline.Name, inline.Source.CSI.VolumeHandle = true, "own", ""
	want := map[string]storage.Volume{}
	for _, v := range []storage.Volume{files, block, inline} {
		u := w.use(v, podNamed("a"))
		want[u.Path] = v
		if v.Block { // whether the driver can make the device does not matter
			want[w.StagePath(v)] = v
			requireNoError(t, w.Stage(t.Context(), v, w.StagePath(v), u))
			requireNoError(t, linkDevice(w.publishPath(v, u.Pod.UID), u.Path))
			continue
		}
		if staged := w.StagePath(v); staged != "" {
			want[staged] = v
		}
		requireNoError(t, w.mount(v, u))
	}
	found, err := w.Find(func(string) bool { return false })
	requireNoError(t, err)
	for _, m := range found {
		v, ok := want[m.Path]
		got, wanted := m.Volume.Source.CSI, v.Source.CSI
		if !ok || m.Pod != w.podUID(m.Path) || m.Volume.Name != v.Name || m.Volume.Block != v.Block || m.Volume.Inline != v.Inline ||
			m.Volume.Label != v.Label || got.Driver != wanted.Driver || !v.Inline && got.VolumeHandle != wanted.VolumeHandle ||
			volumeID(m.Volume, m.Pod) != volumeID(v, m.Pod) {
			t.Errorf("%s: %+v, %+v", m.Path, m.Volume, got)
		}
		delete(want, m.Path)
		requireNoErrorAt(t, m.Path, func() error {
			if m.Pod == "" {
				return nil
			}
			return w.Unpublish(t.Context(), m.Volume, m.Pod, m.Path)
		})
	}
	if len(want) != 0 {
		t.Errorf("not found: %q", slices.Sorted(maps.Keys(want)))
	}
	for _, m := range found {
		if m.Pod == "" {
			requireNoErrorAt(t, m.Path, func() error { return w.Unstage(t.Context(), m.Volume, m.Path) })
		}
	}
	w.checkUnstaged()
	if found, err := w.Find(func(string) bool { return false }); err != nil || len(found) != 0 {
		t.Errorf("still found: %v, %v", found, err)
	}
}

func requireNoErrorAt(t *testing.T, path string, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// TestFindDamaged checks volumes whose vol_data.json is damaged: the mount of a pod stays, and the pod's volumes cannot be torn down. When
// the mount is gone, as after a reboot, they can. A file without a mount is ignored. Known paths are skipped.
func TestFindDamaged(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	u := w.use(v, podNamed("a"))
	requireNoError(t, w.mount(v, u))
	for _, text := range []string{"", "{", "[]", `{"driverName":"../x"}`, strings.Repeat(" ", maxData+1)} {
		requireNoError(t, os.WriteFile(filepath.Join(filepath.Dir(u.Path), dataFile), []byte(text), 0o600))
		found, err := w.Find(func(path string) bool { return path != u.Path })
		if err == nil || len(found) != 1 {
			t.Fatalf("%.20q: %v, %v", text, found, err)
		}
		db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "islet.db"), slog.New(slog.DiscardHandler))
		requireNoError(t, err)
		k, err := storage.New(t.Context(), storage.Config{Root: w.root, Drivers: []storage.Driver{w.Drivers}, Ledger: db, Objects: w})
		requireNoError(t, err)
		if err := k.TearDown(t.Context(), u.Pod.UID); err == nil || !mounted(u.Path) || !k.HasPod(u.Pod.UID) {
			t.Errorf("%.20q: %v, mounted: %v", text, err, mounted(u.Path))
		}
		if found, err := w.Find(func(string) bool { return true }); err != nil || len(found) != 0 {
			t.Errorf("%.20q: known: %v, %v", text, found, err)
		}
		requireNoError(t, unbind(u.Path, false))
		k, err = storage.New(t.Context(), storage.Config{Root: w.root, Drivers: []storage.Driver{w.Drivers}, Ledger: db, Objects: w})
		requireNoError(t, err)
		if err := k.TearDown(t.Context(), u.Pod.UID); err != nil || k.HasPod(u.Pod.UID) {
			t.Errorf("%.20q: not mounted: %v, in use: %q", text, err, k.InUse())
		}
		requireNoError(t, w.faulty.bind(u.Path, false))
		db.Close()
	}
	requireNoError(t, unbind(u.Path, true))
	if found, err := w.Find(func(path string) bool { return path != u.Path }); err != nil || len(found) != 0 {
		t.Errorf("not mounted: %v, %v", found, err)
	}
	w.undo(v, u)
}

// TestFoundIsNotMountedAgain checks that a pod whose claim cannot be resolved does not get a volume that was only found, because the data
// for its mount is missing.
func TestFoundIsNotMountedAgain(t *testing.T) {
	w := newWorld(t)
	n := &node{world: w}
	n.newStore()
	n.start()
	n.register()
	pod := podNamed("a")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}}}
	_, err := n.mounter.SetUp(t.Context(), pod, &pod.Spec.Volumes[0], "")
	requireNoError(t, err)
	for _, lost := range []bool{false, true} {
		if lost {
			n.newStore()
		}
		n.start()
		n.register()
		w.noVolume.Store(true)
		if _, err := n.mounter.SetUp(t.Context(), pod, &pod.Spec.Volumes[0], ""); (err != nil) != lost {
			t.Errorf("lost %v: %v", lost, err)
		}
		w.noVolume.Store(false)
	}
	requireNoError(t, n.mounter.TearDown(t.Context(), pod.UID))
	w.checkUnstaged()
	n.kill()
	n.db.Close()
}
