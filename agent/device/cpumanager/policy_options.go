package cpumanager

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Options contains the options of the policy "static".
type Options struct {
	FullCores   bool // full-pcpus-only: a container gets whole cores only
	AcrossNodes bool // distribute-cpus-across-numa
	BySocket    bool // align-by-socket
	AcrossCores bool // distribute-cpus-across-cores
	Strict      bool // strict-cpu-reservation: the shared pool does not contain the reserved CPUs
	ByCache     bool // prefer-align-cpus-by-uncorecache
}

// ParseOptions parses cpuManagerPolicyOptions. The parameters alpha and beta are the values of the feature gates
// CPUManagerPolicyAlphaOptions and CPUManagerPolicyBetaOptions. The error messages are the same as in a kubelet.
func ParseOptions(given map[string]string, alpha, beta bool) (o Options, err error) {
	fields := map[string]struct {
		to    *bool
		level string
		on    bool
	}{
		"full-pcpus-only":                  {&o.FullCores, "", true},
		"strict-cpu-reservation":           {&o.Strict, "", true},
		"prefer-align-cpus-by-uncorecache": {&o.ByCache, "", true},
		"distribute-cpus-across-numa":      {&o.AcrossNodes, "Beta", beta},
		"align-by-socket":                  {&o.BySocket, "Alpha", alpha},
		"distribute-cpus-across-cores":     {&o.AcrossCores, "Alpha", alpha},
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		f, known := fields[name]
		if !known {
			return o, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		if !f.on {
			return o, fmt.Errorf("CPU Manager Policy %s-level Options not enabled, but option %q provided", f.level, name)
		}
		if *f.to, err = strconv.ParseBool(given[name]); err != nil {
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		}
	}
	for _, pair := range []struct {
		a, b string
		both bool
	}{
		{"full-pcpus-only", "distribute-cpus-across-cores", o.FullCores && o.AcrossCores},
		{"distribute-cpus-across-numa", "distribute-cpus-across-cores", o.AcrossNodes && o.AcrossCores},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores", o.ByCache && o.AcrossCores},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa", o.ByCache && o.AcrossNodes},
	} {
		if pair.both {
			return o, fmt.Errorf("static policy options %s and %s can not be used at the same time", pair.a, pair.b)
		}
	}
	return o, nil
}
