package cpumanager_test

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/cpumanager"
)

// TestSharedCPUs checks that New rejects isolated CPUs if no CPU remains that containers can share. The runtime would give an empty set of
// CPUs all CPUs. The error names the fields.
func TestSharedCPUs(t *testing.T) {
	for _, c := range []struct {
		strict             bool
		reserved, isolated string
		shared             string // empty if the configuration is rejected
	}{
		{true, "0", "1-3", ""},
		{true, "0-1", "1-3", ""},
		{false, "0", "0-3", ""},
		{true, "0", "2-3", "1"},
		{false, "0", "1-3", "0"},
	} {
		reserved, isolated := must(cpuset.Parse(c.reserved)), must(cpuset.Parse(c.isolated))
		s, err := cpumanager.New(cpumanager.Config{Machine: machine(1, 1, 1, 4, 1), Options: cpumanager.Options{Strict: c.strict}, Count: reserved.Size(),
			Reserved: reserved, Isolated: isolated})
		if c.shared != "" {
			if err != nil || s.SharedCPUs(nil).String() != c.shared {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		for _, field := range []string{"realTime.pods", "isolatedCPUs", "reservedSystemCPUs", "strict-cpu-reservation", c.isolated, c.reserved} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%+v: the error %v does not name %s", c, err, field)
			}
		}
	}
}

func must(set cpuset.CPUSet, err error) cpuset.CPUSet {
	if err != nil {
		panic(err)
	}
	return set
}
