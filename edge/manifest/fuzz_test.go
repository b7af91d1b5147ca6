package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/islet-edge/islet/internal/keys"
)

// FuzzDecode checks that decoding does not panic, and that every error names the origin of the manifest. A decoded pod must not change
// when it is encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		web, "---\n" + web + "---\n" + strings.Replace(web, "name: web\nspec", "name: two\nspec", 1), "{}", "[]", "null",
		"a: *a", "a: &a [*a]", "{\"kind\":\"Pod\"",
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {b: c}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: c}\n",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
		"<<: {a: b}", "? [a]\n: b", "!!binary aGk=", "a: !!timestamp 2001-01-01", "%YAML 1.1\n---\na: b", "\ufeff{}", "a: .nan",
		"1: a\n'1': b",
	} {
		f.Add([]byte(seed))
	}
	for _, c := range verdicts(f) {
		f.Add([]byte(c.Pod))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := Options{Origin: "fuzz", Source: keys.SourceAPI, NodeName: "node", Lists: true}
		set, err := Decode(data, o)
		pods := set.Pods
		if err != nil {
			if !set.IsEmpty() || len(ErrorsIn(err)) == 0 {
				t.Fatalf("error %v with %d pods", err, len(pods))
			}
			for _, e := range ErrorsIn(err) {
				if e.Origin != o.Origin || e.Detail == "" {
					t.Fatalf("error without origin or detail: %#v", e)
				}
			}
			return
		}
		for _, pod := range pods {
			again := reencode(t, pod, o)
			if !equality.Semantic.DeepEqual(pod, again) {
				t.Fatalf("decoded again it differs:\n%v\n%v", pod, again)
			}
		}
		o.Source = keys.SourceFile
		own, err := Decode(data, o)
		if err != nil && len(ErrorsIn(err)) == 0 {
			t.Fatalf("not an error of this package: %v", err)
		}
		for _, pod := range own.Pods {
			if !strings.HasSuffix(pod.Name, "-node") || pod.UID == "" || pod.Status.Phase != v1.PodPending {
				t.Fatalf("not a static pod: %v", pod)
			}
		}
		for _, obj := range own.Objects {
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Decode(text, o)
			if err != nil || len(again.Objects) != 1 || !equality.Semantic.DeepEqual(obj, again.Objects[0]) {
				t.Fatalf("decoded again it differs: %v\n%v\n%v", err, obj, again.Objects)
			}
		}
	})
}

func reencode(t *testing.T, pod *v1.Pod, o Options) *v1.Pod {
	t.Helper()
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Decode(data, o)
	if err != nil {
		t.Fatalf("decode again: %v\n%s", err, data)
	}
	return set.Pods[0]
}

// A verdict is a pod with two validation results. The first comes from an API server (validation and defaults of the core API of
// Kubernetes 1.36.3), the second from this package.
type verdict struct {
	Pod        json.RawMessage `json:"pod"`
	Kubernetes []string        `json:"kubernetes,omitempty"` // kind and field of each error
	Says       []string        `json:"says,omitempty"`       // the errors of this package, as text
	Defaulted  json.RawMessage `json:"defaulted,omitempty"`  // for some valid pods
}

func verdicts(t testing.TB) []verdict {
	t.Helper()
	data, err := os.ReadFile("testdata/verdicts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var set []verdict
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		set = append(set, v)
	}
	return set
}

// TestVerdicts compares the validation and the defaults of this package with those of Kubernetes.
func TestVerdicts(t *testing.T) {
	for _, want := range verdicts(t) {
		set, err := Decode(want.Pod, Options{Source: keys.SourceAPI})
		var says []string
		for _, e := range ErrorsIn(err) {
			says = append(says, e.Field+": "+e.Detail)
		}
		if (err != nil) != (len(want.Kubernetes) > 0) {
			t.Errorf("%s\nsays %q, Kubernetes %q", want.Pod, says, want.Kubernetes)
		}
		if strings.Join(says, "\n") != strings.Join(want.Says, "\n") {
			t.Errorf("%s\nsays %q\nwant %q", want.Pod, says, want.Says)
		}
		if err == nil && want.Defaulted != nil {
			if got, _ := json.Marshal(set.Pods[0]); !bytes.Equal(got, want.Defaulted) {
				t.Errorf("%s\ndefaults to %s\nKubernetes  %s", want.Pod, got, want.Defaulted)
			}
		}
	}
}
