package dra

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// TestReleasedTwice: a repeated release of a pod does nothing: it neither takes the claim from another pod nor stores
// the claim again.
func TestReleasedTwice(t *testing.T) {
	w := newWorld(t)
	f := &fake{}
	w.register(f.serve(t, false))
	a, b := pod("a", "gpu"), pod("b", "gpu")
	w.object("gpu", a, b)
	w.prepare(a, "")
	w.prepare(b, "")
	f.recordedCalls()
	c := w.find(a, "gpu")
	release := func(p *v1.Pod) {
		t.Helper()
		if err := w.release(t.Context(), p.UID, c); err != nil {
			t.Error(err)
		}
	}
	release(a)
	release(a) // it has waited for the first one
	if got := f.recordedCalls(); got != "" {
		t.Errorf("the driver was asked %q while another pod uses the claim", got)
	}
	if got := cdi(w, b); len(got) != 1 {
		t.Errorf("the other pod has %q", got)
	}
	release(b)
	release(b)
	if got := f.recordedCalls(); got != "unprepare gpu" {
		t.Errorf("the driver was asked %q", got)
	}
	if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("stored claims: %v, %v", rows, err)
	}
}

// TestReleaseOfARefusedPod: a pod that may not use a claim does not release the claim of another pod.
func TestReleaseOfARefusedPod(t *testing.T) {
	w := newWorld(t)
	f := &fake{}
	w.register(f.serve(t, false))
	a, b := pod("a", "gpu"), pod("b", "gpu")
	w.object("gpu", a)
	w.prepare(a, "")
	w.prepare(b, "is not allowed to use ResourceClaim gpu")
	f.recordedCalls()
	if err := w.Ended(t.Context(), b); err != nil {
		t.Error(err)
	}
	if err := w.Release(t.Context(), b.UID); err != nil {
		t.Error(err)
	}
	if got := f.recordedCalls(); got != "" {
		t.Errorf("the driver was asked %q", got)
	}
	if got := cdi(w, a); len(got) != 1 {
		t.Errorf("the other pod has %q", got)
	}
}

// TestPreparedWhileItIsUnprepared: a pod that needs a claim while a driver unprepares it waits, and then the driver
// prepares the claim again.
func TestPreparedWhileItIsUnprepared(t *testing.T) {
	w := newWorld(t)
	f := &fake{hold: make(chan struct{})}
	w.register(f.serve(t, false))
	a, b := pod("a", "gpu"), pod("b", "gpu")
	w.object("gpu", a, b)
	w.prepare(a, "")
	released, prepared := make(chan error, 1), make(chan error, 1)
	go func() { released <- w.Release(t.Context(), a.UID) }()
	<-f.hold // the driver is unpreparing the claim
	go func() { prepared <- w.Prepare(t.Context(), b) }()
	f.hold <- struct{}{}
	if err := <-released; err != nil {
		t.Error(err)
	}
	if err := <-prepared; err != nil {
		t.Error(err)
	}
	if got := f.recordedCalls(); got != "prepare gpu, unprepare gpu, prepare gpu" {
		t.Errorf("the driver was asked %q", got)
	}
	if got := cdi(w, b); len(got) != 1 {
		t.Errorf("the pod has %q", got)
	}
	if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 1 {
		t.Errorf("stored claims: %v, %v", rows, err)
	}
}

// TestRetryKeepsOneOfEachDevice: after a driver has failed, a second attempt does not list the devices of the others
// twice, also not after a restart between the attempts.
func TestRetryKeepsOneOfEachDevice(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			w := newWorld(t)
			good, bad := &fake{}, &fake{fail: "no"}
			first, second := good.serve(t, false), bad.serve(t, false)
			second.Name = "other.example.com"
			w.register(first)
			w.register(second)
			p := pod("p", "gpu")
			object := w.object("gpu", p)
			results := &object.Status.Allocation.Devices.Results
			*results = append(*results, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: second.Name, Pool: "p", Device: "d"})
			w.prepare(p, "NodePrepareResources failed for ResourceClaim gpu: no")
			if restart {
				w.start()
				w.register(first)
				w.register(second)
			}
			bad.mu.Lock()
			bad.fail = ""
			bad.mu.Unlock()
			w.prepare(p, "")
			uses, err := w.Uses(p, &p.Spec.Containers[0])
			if err != nil || len(uses) != 4 { // two devices of each driver
				t.Errorf("the container has %+v, %v", uses, err)
			}
			if got := cdi(w, p); !slices.Equal(got, []string{"example.com/gpu=gpu"}) {
				t.Errorf("the container has the CDI devices %q", got)
			}
		})
	}
}
