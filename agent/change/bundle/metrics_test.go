package bundle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/internal/seriestest"
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

// TestAlertSeries records the metrics of a node with bundles, for the test of the alerts.
func TestAlertSeries(t *testing.T) {
	n, r, began := &Node{}, seriestest.New("bundle"), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	begin := func(number int64) {
		b := Bundle{Name: "kiosk", Number: number, Digest: digest.FromString(fmt.Sprint(number))}
		n.record.Begin(Trial{Bundle: b}, nil, nil, began)
	}
	r.Scrape(t, 0, "no bundle", n.Collectors()...)
	begin(1)
	r.Scrape(t, 30*time.Minute, "the first bundle is on trial", n.Collectors()...)
	n.record.Fail("a pod is not ready", Failed, began.Add(40*time.Minute))
	r.Scrape(t, 40*time.Minute, "the first bundle has failed", n.Collectors()...)
	begin(2)
	r.Scrape(t, 4*time.Hour, "the second bundle is on trial", n.Collectors()...)
	n.record.Keep(began.Add(4*time.Hour + 10*time.Minute))
	r.Scrape(t, 4*time.Hour+10*time.Minute, "the second bundle is kept", n.Collectors()...)
	if err := n.record.Revert(began.Add(6 * time.Hour)); err == nil { // the first one has failed
		t.Error("reverted to a bundle that was never in force")
	}
	begin(3)
	n.record.Keep(began.Add(6 * time.Hour))
	if err := n.record.Revert(began.Add(7 * time.Hour)); err != nil {
		t.Error(err)
	}
	r.Scrape(t, 7*time.Hour, "a person has reverted the third bundle", n.Collectors()...)
	r.Compare(t)
}
