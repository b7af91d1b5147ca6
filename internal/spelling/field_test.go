package spelling_test

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/spelling"
)

// TestSuggestField checks the hints for unknown fields of a pod. The hint is empty for a path that cannot be a path of a pod.
func TestSuggestField(t *testing.T) {
	pod := reflect.TypeFor[v1.Pod]()
	for path, want := range map[string]string{
		"spec.containers[0].imagee": `did you mean "image"?`, "spec.volumes[0].hostPaht": `did you mean "hostPath"?`,
		"spec.containers[0].resources.limit": `did you mean "limits"?`, "spec.containers[0].limits": "it belongs in spec.containers[0].resources",
		"spec.containers[0].runAsUser": "it belongs in spec.containers[0].securityContext", "spec.containers[0].volumes": "it belongs in spec",
		"": "", ".": "", "[": "", "[0]": "", "spec.": "", "spec.containers[": "", "spec.containers[x": "", "spec[0].a": "", "spec.x.y": "", "spec.nodeName.x": "",
		"metadata.labels[a].b": "", "spec.containers[0].ports[0].hostIP.a": "",
	} {
		if got := spelling.SuggestField(pod, path); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

func FuzzSuggestField(f *testing.F) {
	for _, seed := range []string{"spec.containers[0].imagee", "", "[", "a.b[0].c", "metadata.labels[a].b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if got := spelling.SuggestField(reflect.TypeFor[v1.Pod](), path); got != "" && !strings.HasPrefix(got, ": ") {
			t.Errorf("%q: %q", path, got)
		}
	})
}
