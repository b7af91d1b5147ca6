package plugins

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetrics checks that the metric counts sockets and registered plugins. A plugin whose socket was removed is counted until it is
// deregistered.
func TestMetrics(t *testing.T) {
	r := &Registry{sockets: map[string]*socket{
		"/a.sock": {exists: true, registered: &registeredSocket{}}, "/b.sock": {exists: true}, "/c.sock": {registered: &registeredSocket{}}, "/d.sock": {},
	}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.Collectors()...)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "plugin_manager_total_plugins" {
		t.Fatalf("%v: %v", families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].Metric {
		got[m.Label[0].GetValue()+" "+m.Label[1].GetValue()] = m.GetGauge().GetValue()
	}
	want := map[string]float64{
		"/a.sock desired_state_of_world": 1, "/a.sock actual_state_of_world": 1, "/b.sock desired_state_of_world": 1,
		"/c.sock actual_state_of_world": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, not %v", got, want)
	}
}
