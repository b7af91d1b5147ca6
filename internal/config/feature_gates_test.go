package config

import (
	"slices"
	"testing"

	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// TestGatesOfTheKubelet checks that the table of feature gates is equal to the table of a kubelet.
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

// TestGatesOfDeclaredFeatures checks the gates that are off by default and belong to a feature that nodes declare. Such a gate must have an
// effect or be rejected. Otherwise a user would believe that the node has the feature, although the node does not declare it.
func TestGatesOfDeclaredFeatures(t *testing.T) {
	known, checked := knownGates(), 0
	for _, f := range features.AllFeatures {
		for _, gate := range f.Requirements().EnabledFeatureGates {
			if g, ok := known[gate]; !ok || g.on {
				continue
			}
			checked++
			c := &checker{k: &kubelet.KubeletConfiguration{}}
			c.k.FeatureGates = map[string]bool{gate: true}
			if c.checkFeatureGates(); (len(c.errs) == 0) != slices.Contains(supportedGates(), gate) {
				t.Errorf("%s: %v", gate, c.errs)
			}
		}
	}
	if checked < 5 {
		t.Errorf("%d gates", checked)
	}
}
