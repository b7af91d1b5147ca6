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

// gatesFile is where internal/config finds the feature gates that a kubelet knows: name, stage,
// default and, if it is locked to that, the word. Written with -update.
const gatesFile = "../../../internal/config/gates-1.37.txt"

// TestFeatureGates: internal/config knows the feature gates that a kubelet does.
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
		t.Errorf("%s is not what a kubelet knows:\n%s", gatesFile, b.String())
	}
}
