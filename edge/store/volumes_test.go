package store

import (
	"slices"
	"testing"
)

// TestVolumes checks that mounts survive a restart and that the same mount is stored only once.
func TestVolumes(t *testing.T) {
	s := open(t, t.TempDir()+"/islet.db")
	ctx := t.Context()
	staged := Volume{VolumeKey{"kubernetes.io/csi/d^v", "", "/var/lib/kubelet/plugins/x"}, []byte("{}")}
	one := Volume{VolumeKey{staged.Volume, "uid", "/var/lib/kubelet/pods/uid/volumes/x"}, []byte("first")}
	other := one
	other.Pod, other.Path = "other", "/var/lib/kubelet/pods/other/volumes/x"
	for _, v := range []Volume{staged, one, other} {
		must(t, s.PutVolume(ctx, v))
	}
	one.Data = []byte("second")
	must(t, s.PutVolume(ctx, one))
	must(t, s.RemoveVolume(ctx, other.VolumeKey))
	must(t, s.RemoveVolume(ctx, other.VolumeKey)) // repeats the removal
	s = reopen(t, s)
	list, err := s.Volumes(ctx)
	must(t, err)
	if len(list) != 2 || !slices.EqualFunc(list, []Volume{staged, one},
		func(a, b Volume) bool { return a.VolumeKey == b.VolumeKey && string(a.Data) == string(b.Data) }) {
		t.Errorf("got %+v", list)
	}
}
