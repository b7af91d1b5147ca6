package node

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestInUseAgain checks a volume that is used again while a report from the time between the two uses is sent. InUse waits for the report
// after that one.
func TestInUseAgain(t *testing.T) {
	in(t, nil, func(w *world) {
		id := v1.UniqueVolumeName("kubernetes.io/csi/d^h")
		use := func(ids ...v1.UniqueVolumeName) { w.are(func(f *Facts) { f.VolumesInUse = ids }) }
		use(id)
		if err := w.InUse(w.Context(), id); err != nil {
			t.Fatal(err)
		}
		arrive := make(chan struct{})
		slow := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/n/status") {
				<-arrive
			}
			return false
		}
		w.Fault.Store(&slow)
		use()
		w.Poke()
		synctest.Wait()
		use(id)
		given := make(chan error, 1)
		go func() { given <- w.InUse(w.Context(), id) }()
		synctest.Wait()
		if len(given) > 0 {
			t.Error("in use before the last report")
		}
		close(arrive)
		if err := <-given; err != nil || !slices.Contains(w.node().Status.VolumesInUse, id) {
			t.Errorf("%v, in use: %v", err, w.node().Status.VolumesInUse)
		}
	})
}

// TestInUseOfNewNode checks that InUse does not wait for the next period if the Node was created with the volume.
func TestInUseOfNewNode(t *testing.T) {
	id := v1.UniqueVolumeName("kubernetes.io/csi/d^h")
	in(t, func(c *Config) {
		facts := c.Facts
		c.Facts = func(ctx context.Context) (Facts, error) {
			f, err := facts(ctx)
			f.VolumesInUse = append(f.VolumesInUse, id)
			return f, err
		}
	}, func(w *world) {
		began := time.Now()
		if err := w.InUse(w.Context(), id); err != nil || time.Since(began) >= time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
