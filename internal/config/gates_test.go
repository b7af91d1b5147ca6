package config

import "testing"

// TestGatesOfTheKubelet checks that the table of feature gates is equal to that of a kubelet.
func TestGatesOfTheKubelet(t *testing.T) {
	known := knownGates()
	for _, c := range []struct {
		names []string
		on    bool
		stage string // if empty, the stage is ALPHA, or BETA and off
	}{{append(offGates(), unsupportedGates()...), false, ""}, {betaGates(), true, "BETA"}, {[]string{gateQuotaPeriod, gateSELinuxMount}, true, "GA"}} {
		for _, name := range c.names {
			if got, ok := known[name]; !ok || c.stage != "" && got.stage != c.stage || got.on != c.on || got.locked {
				t.Errorf("%s is %+v, not %s and %v", name, got, c.stage, c.on)
			}
		}
	}
	if len(known) < 200 {
		t.Errorf("%d gates", len(known))
	}
}
