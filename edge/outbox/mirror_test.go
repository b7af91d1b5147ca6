package outbox

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// TestMirrorNamesNothing checks that a mirror pod has no reference that an API server rejects, and that the static pod is not
// modified.
func TestMirrorNamesNothing(t *testing.T) {
	var spec v1.PodSpec
	if err := json.Unmarshal([]byte(`{"nodeName":"n","imagePullSecrets":[{"name":"a"}],"volumes":[
		{"name":"m","configMap":{"name":"a"}},{"name":"s","secret":{"secretName":"a"}},{"name":"c","persistentVolumeClaim":{"claimName":"a"}},
		{"name":"p","projected":{"sources":[{"downwardAPI":{}},{"secret":{"name":"a"}}]}},{"name":"h","hostPath":{"path":"/x"}}],
		"initContainers":[{"name":"i","image":"i","envFrom":[{"configMapRef":{"name":"a"}}]}],
		"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"a","key":"k"}}},{"name":"F","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}`), &spec); err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: map[string]string{}}, Spec: spec}
	before := pod.DeepCopy().String()
	m := mirrorOf(pod, "uid")
	podspec.VisitReferences(&m.Spec, func(kind, name string) { t.Errorf("names %s %s", kind, name) })
	if pod.String() != before {
		t.Error("the pod was changed")
	}
	text, err := json.Marshal(m.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"name":"m","emptyDir":{}}`, `{"name":"p","emptyDir":{}}`,
		`{"name":"h","hostPath":{"path":"/x"}}`, `"env":[{"name":"A","value":"1"},{"name":"B"},{"name":"F","valueFrom"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
