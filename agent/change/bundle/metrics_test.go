package bundle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCollectors checks the metrics of a node with a bundle of each state, and that a node without bundles has no metrics of them.
func TestCollectors(t *testing.T) {
	n := &Node{}
	gather := func() (lines []string) {
		t.Helper()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(n.Collectors()...)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				line := f.GetName()
				for _, l := range m.GetLabel() {
					line += " " + l.GetValue()
				}
				lines = append(lines, fmt.Sprintf("%s %.0f", line, m.GetGauge().GetValue()))
			}
		}
		return lines
	}
	if got := gather(); len(got) != 0 {
		t.Errorf("a node without bundles has the metrics %q", got)
	}
	n.record = Record{
		Current: &Bundle{Name: "kiosk", Number: 4}, Previous: &Bundle{Name: "kiosk", Number: 3},
		Trial: &Trial{Bundle: Bundle{Name: "wall", Number: 1}},
		Last:  &Outcome{Bundle: Bundle{Name: "kiosk", Number: 4}, Result: Kept, Time: time.Unix(1700000000, 5)},
	}
	want := []string{
		"islet_bundle_info kiosk current 4", "islet_bundle_info kiosk previous 3", "islet_bundle_info wall trial 1",
		"islet_bundle_result kiosk kept 1700000000",
	}
	if got := gather(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
