package config

import "testing"

// TestGatesOfTheKubelet: the table of feature gates agrees with a kubelet's.
func TestGatesOfTheKubelet(t *testing.T) {
	known := knownGates()
	for stage, names := range map[string][]string{"ALPHA": append(offGates(), unsupportedGates()...), "BETA": betaGates(), "GA": {gateQuotaPeriod}} {
		for _, name := range names {
			if got := known[name]; got.stage != stage || got.on == (stage == "ALPHA") || got.locked {
				t.Errorf("%s is %+v, not %s", name, got, stage)
			}
		}
	}
	if len(known) < 200 {
		t.Errorf("%d gates", len(known))
	}
}
