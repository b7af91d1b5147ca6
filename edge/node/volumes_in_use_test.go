package node

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// TestInUse checks that InUse returns after the API server has stored the volume in volumesInUse. The volumesAttached list of the
// attach-detach controller is kept.
func TestInUse(t *testing.T) {
	in(t, nil, func(w *world) {
		id := v1.UniqueVolumeName("kubernetes.io/csi/d^h")
		n := w.node()
		n.Status.VolumesAttached = []v1.AttachedVolume{{Name: id, DevicePath: "/dev/sdb"}}
		w.Server.Put(n)
		w.Server.Disconnect()
		ctx, stop := context.WithCancel(w.Context())
		given := make(chan error)
		go func() { given <- w.InUse(ctx, id) }()
		synctest.Wait()
		stop()
		if err := <-given; err == nil {
			t.Error("in use before the server lists the volume")
		}
		w.are(func(f *Facts) { f.VolumesInUse = []v1.UniqueVolumeName{id} })
		w.Server.Reconnect()
		if err := w.InUse(w.Context(), id); err != nil {
			t.Fatal(err)
		}
		if st := w.node().Status; !slices.Equal(st.VolumesInUse, []v1.UniqueVolumeName{id}) || len(st.VolumesAttached) != 1 {
			t.Errorf("in use: %v, attached: %v", st.VolumesInUse, st.VolumesAttached)
		}
		if err := w.InUse(w.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.are(func(f *Facts) { f.VolumesInUse = nil })
		w.Poke()
		synctest.Wait()
		if st := w.node().Status; len(st.VolumesInUse) != 0 {
			t.Errorf("still in use: %v", st.VolumesInUse)
		}
	})
}
