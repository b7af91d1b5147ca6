package upstream

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	_ "k8s.io/apiextensions-apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	metrics "k8s.io/component-base/metrics/features"
	_ "k8s.io/kubernetes/pkg/features"
)

// gatesFile contains a kubelet's feature gates for internal/config: name, stage, default and, if the gate is locked to its default, the
// word "locked". The flag -update writes it.
const gatesFile = "../../../internal/config/gates-1.37.txt"

// TestFeatureGates checks that internal/config knows the feature gates of a kubelet.
func TestFeatureGates(t *testing.T) {
	gate := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := logsapi.AddFeatureGates(gate); err != nil {
		t.Fatal(err)
	}
	if err := metrics.AddFeatureGates(gate); err != nil {
		t.Fatal(err)
	}
	all := gate.GetAll()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		s := all[name]
		stage := string(s.PreRelease)
		if stage == "" {
			stage = "GA"
		}
		fmt.Fprint(&b, name, " ", stage, " ", s.Default)
		if s.LockToDefault {
			b.WriteString(" locked")
		}
		b.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(gatesFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(gatesFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s differs from a kubelet's feature gates:\n%s", gatesFile, b.String())
	}
}
