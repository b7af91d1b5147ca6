package check

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestVolumeTypes checks that exactly the volume types that docs/pod-fields.md lists as refused are reported. Another test compares this
// document with the node.
func TestVolumeTypes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/pod-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	types := reflect.TypeFor[v1.VolumeSource]()
	for i := range types.NumField() {
		name, _, _ := strings.Cut(types.Field(i).Tag.Get("json"), ",")
		if want := strings.Contains(string(doc), "\n| "+name+" | refused |"); want != slices.Contains(refusedVolumes(), name) {
			t.Errorf("%s: refused in the document: %v", name, want)
		}
	}
	compare(t, check(web("web", "", "volumes:\n- name: a\n  gitRepo:\n    repository: x\n- name: b\n  hostPath: {path: /b}")),
		`a.yaml:11: error: pod "web": spec.volumes[0].gitRepo: islet does not support volumes of this type`)
}
