package machine

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
)

// silentRuntime is a runtime that does not respond.
type silentRuntime struct{ Runtime }

func (silentRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return nil, errors.New("no answer")
}

// TestFacts checks that the Node reports swap only if the machine has swap. Each current pressure is a condition of the Node and causes an
// event.
func TestFacts(t *testing.T) {
	cfg, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--node-ip=10.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(t.Context(), cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	has, err := inspectMachine(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if m.swap != has.swap {
		t.Errorf("swap of %d bytes, of which the machine has %d", m.swap, has.swap)
	}
	var pressures []v1.NodeConditionType
	m.SetPressures(func() []v1.NodeConditionType { return pressures })
	last := "" // reason in the last event
	events := eventtest.Sink(func(e eventtest.Event) { last = e.Reason })
	r := NewReporter(ReporterConfig{Machine: m, Runtime: silentRuntime{}, NotReady: func(context.Context) []string { return nil },
		Addresses: func([]string, []netip.Addr) {}, Events: events, Log: slog.New(slog.DiscardHandler)})
	for _, x := range []struct {
		swap      int64
		pressures []v1.NodeConditionType
		event     string // the last event
	}{
		{0, nil, "NodeReady"},
		{3 << 30, []v1.NodeConditionType{v1.NodeMemoryPressure}, "NodeHasInsufficientMemory"},
		{1, []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodePIDPressure}, "NodeHasInsufficientPID"},
		{0, []v1.NodeConditionType{v1.NodePIDPressure}, "NodeHasSufficientMemory"},
	} {
		m.swap, pressures = x.swap, x.pressures
		f, err := r.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s := f.Info.Swap; (s == nil) != (x.swap == 0) || s != nil && *s.Capacity != x.swap {
			t.Errorf("with %d bytes of swap: %+v", x.swap, s)
		}
		for of, said := range map[v1.NodeConditionType]bool{v1.NodeMemoryPressure: f.MemoryPressure, v1.NodeDiskPressure: f.DiskPressure, v1.NodePIDPressure: f.PIDPressure} {
			if said != slices.Contains(x.pressures, of) {
				t.Errorf("with %v: %s is %v", x.pressures, of, said)
			}
		}
		if last != x.event {
			t.Errorf("with %v: the last event is %q, want %q", x.pressures, last, x.event)
		}
	}
}

func TestThrottles(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu1/topology", "cpu12/thermal_throttle", "cpufreq/thermal_throttle"} {
		if err := os.MkdirAll(filepath.Join(root, "sys/devices/system/cpu", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/sys/devices/system/cpu/cpu0/thermal_throttle", "/sys/devices/system/cpu/cpu12/thermal_throttle"}
	if got := throttlePaths(root); !slices.Equal(got, want) {
		t.Errorf("found %v", got)
	}
}

// TestNodeFeatures checks that the Node reports supplementalGroupsPolicy if the runtime reports its features.
func TestNodeFeatures(t *testing.T) {
	if f := nodeFeatures(&cri.StatusResponse{}); f != nil {
		t.Errorf("%+v", f)
	}
	for _, can := range []bool{true, false} {
		f := nodeFeatures(&cri.StatusResponse{Features: &cri.RuntimeFeatures{SupplementalGroupsPolicy: can}})
		if f == nil || f.SupplementalGroupsPolicy == nil || *f.SupplementalGroupsPolicy != can {
			t.Errorf("%t: %+v", can, f)
		}
	}
}
