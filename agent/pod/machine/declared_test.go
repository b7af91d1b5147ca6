package machine

import (
	"slices"
	"testing"

	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/config"
)

// TestDeclared checks that the Node declares each feature in Kubernetes' registry that islet supports. All other features must be in the
// list of missing features.
func TestDeclared(t *testing.T) {
	missing := []string{
		"InPlacePodVerticalScalingMemoryBackedVolumes", "UserNamespacesHostNetworkSupport", "DRANodeAllocatableResources",
		"DRAOptionalNodeOperations",
	}
	all := declaredFeatures(true)
	var known []string
	for _, f := range features.AllFeatures {
		known = append(known, f.Name())
		if slices.Contains(all, f.Name()) == slices.Contains(missing, f.Name()) {
			t.Errorf("%s is new or both declared and missing", f.Name())
		}
	}
	for _, name := range append(missing, all...) {
		if !slices.Contains(known, name) {
			t.Errorf("Kubernetes has no feature %s", name)
		}
	}
	if !slices.IsSorted(all) {
		t.Errorf("not sorted: %q", all)
	}
	if slices.Contains(declaredFeatures(false), config.GateBindOptions) {
		t.Error("declared without the gate")
	}
}

// TestBindOptions checks that mount options are supported if the gate is on. They are not supported if the runtime reports that it cannot
// set them.
func TestBindOptions(t *testing.T) {
	for _, on := range []bool{false, true} {
		cfg := &config.Config{}
		cfg.Kubelet.FeatureGates = map[string]bool{config.GateBindOptions: on}
		n := &Machine{cfg: cfg}
		if got := slices.Contains(n.alphaGates(), config.GateBindOptions); got != on {
			t.Errorf("gate %v, runtime unknown: %v", on, got)
		}
		for _, can := range []bool{false, true} {
			n.setPlainBinds(!(&cri.RuntimeFeatures{MountOptions: can}).GetMountOptions())
			if got := slices.Contains(n.alphaGates(), config.GateBindOptions); got != (on && can) {
				t.Errorf("gate %v, runtime %v: %v", on, can, got)
			}
		}
	}
}
