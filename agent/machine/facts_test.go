package machine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestThrottles(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu1/topology", "cpu12/thermal_throttle", "cpufreq/thermal_throttle"} {
		if err := os.MkdirAll(filepath.Join(root, "sys/devices/system/cpu", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"/sys/devices/system/cpu/cpu0/thermal_throttle", "/sys/devices/system/cpu/cpu12/thermal_throttle"}
	if got := throttles(root); !slices.Equal(got, want) {
		t.Errorf("found %v", got)
	}
}
