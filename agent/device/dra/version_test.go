package dra

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// TestHealthServices checks that the agent reads the health with the newest service that the driver advertises. It does not read the health
// if the driver advertises none.
func TestHealthServices(t *testing.T) {
	for _, c := range []struct {
		serves []string
		hushed bool
		want   string
	}{
		{serves: []string{healthV1}, want: "watch /v1.DRAResourceHealth/NodeWatchResources"},
		{serves: []string{healthV1alpha1}, want: "watch /v1alpha1.DRAResourceHealth/NodeWatchResources"},
		{serves: []string{healthV1alpha1, healthV1}, want: "watch /v1.DRAResourceHealth/NodeWatchResources"},
		{serves: []string{healthV1, healthV1alpha1}, hushed: true},
	} {
		w := newWorld(t)
		f := &fake{health: make(chan []*health.DeviceHealth, 1), serves: c.serves, hushed: c.hushed}
		p := pod("p", "gpu")
		w.object("gpu", p)
		at := f.serve(t, false)
		w.register(at)
		w.prepare(p, "")
		if c.want != "" {
			f.health <- []*health.DeviceHealth{{Device: &health.DeviceIdentifier{PoolName: "p", DeviceName: "d"}, Health: health.HealthStatus_HEALTHY}}
			<-w.touched
			if st := w.Status(p, &p.Spec.Containers[0]); len(st) != 1 || st[0].Resources[0].Health != v1.ResourceHealthStatusHealthy {
				t.Errorf("%q: the status is %+v", c.serves, st)
			}
		}
		w.Deregister(at)
		w.Close()
		f.server.GracefulStop() // all calls have been served
		var watched []string
		for _, said := range strings.Split(f.recordedCalls(), ", ") {
			if strings.HasPrefix(said, "watch ") {
				watched = append(watched, said)
			}
		}
		if got := strings.Join(watched, ", "); got != c.want {
			t.Errorf("%q, advertised %v: called %q, not %q", c.serves, !c.hushed, got, c.want)
		}
	}
}
