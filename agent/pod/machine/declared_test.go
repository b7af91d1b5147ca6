package machine

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
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

// TestRuntimeFeatures checks that pods may use a feature only if the runtime reports it now, also on a node without an API server, where no
// Reporter reads the status of the runtime. Mount options need their gate too. A runtime that reports no features has none.
func TestRuntimeFeatures(t *testing.T) {
	for _, on := range []bool{false, true} {
		cfg, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--node-ip=10.0.0.2",
			fmt.Sprintf("--feature-gates=%s=%v", config.GateBindOptions, on)})
		if err != nil {
			t.Fatal(err)
		}
		n, err := New(t.Context(), cfg, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		check := func(when string, options, groups bool) {
			t.Helper()
			node := n.Admit()
			if got := slices.Contains(node.Alpha, config.GateBindOptions); got != (on && options) {
				t.Errorf("gate %v, %s: mount options %v", on, when, got)
			}
			if node.StrictGroups != groups {
				t.Errorf("gate %v, %s: strict groups %v", on, when, node.StrictGroups)
			}
		}
		check("runtime unknown", true, true)
		var now *cri.RuntimeFeatures
		n.SetRuntime("containerd", func() *cri.RuntimeFeatures { return now })
		check("no features", false, false)
		for _, options := range []bool{false, true} {
			for _, groups := range []bool{false, true} {
				now = &cri.RuntimeFeatures{MountOptions: options, SupplementalGroupsPolicy: groups}
				check(now.String(), options, groups)
			}
		}
	}
}

// TestRuntimeFeaturesAreKnown checks that each feature that a runtime can report has a row that says how islet treats a pod that needs the
// feature. Without such a treatment, a runtime without the feature would ignore a field of the pod.
func TestRuntimeFeaturesAreKnown(t *testing.T) {
	treated := map[string]string{
		"RuntimeFeatures.supplemental_groups_policy":        "the pod is rejected: package admit",
		"RuntimeFeatures.mount_options":                     "the pod is rejected: package admit",
		"RuntimeFeatures.user_namespaces_host_network":      "islet does not have the gate, and edge/manifest rejects the combination",
		"RuntimeHandlerFeatures.recursive_read_only_mounts": "the container fails: agent/volume/podvolumes",
		"RuntimeHandlerFeatures.user_namespaces":            "the sandbox fails: package userns",
	}
	for _, m := range []proto.Message{&cri.RuntimeFeatures{}, &cri.RuntimeHandlerFeatures{}} {
		d := m.ProtoReflect().Descriptor()
		for i := range d.Fields().Len() {
			name := string(d.Name()) + "." + string(d.Fields().Get(i).Name())
			if treated[name] == "" {
				t.Errorf("the feature %s has no row", name)
			}
			delete(treated, name)
		}
	}
	if len(treated) > 0 {
		t.Errorf("no runtime can report %v", treated)
	}
}
