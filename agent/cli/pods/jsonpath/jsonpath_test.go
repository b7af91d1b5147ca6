package jsonpath

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

func TestJSONPath(t *testing.T) {
	pod := podtest.New("web", podtest.Label("a.b/c", "x"), podtest.Label("d", "e"),
		podtest.Containers(v1.Container{Name: "a", Image: "i"}, v1.Container{Name: "b", Stdin: true}))
	object, err := Decode(pod)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{.metadata.name}": "web", ".metadata.name": "web", "metadata.name": "web", "{$.metadata.name}": "web",
		`{.metadata.labels.a\.b/c}`: "x", `{.metadata.labels['a.b/c']}`: "x", `{.metadata["labels"].d}`: "e",
		"{.spec.containers[0].name}": "a", "{.spec.containers[-1].name}": "b", "{.spec.containers[5].name}": "", "{.spec.containers[-3].name}": "",
		"{.spec.containers[*].name}": "a b", `{.spec.containers[?(@.name=="b")].stdin}`: "true", `{.spec.containers[?(@.name!='b')].name}`: "a",
		"{.spec.containers[?(@.stdin)].name}": "b", "{.spec.containers[?(@.stdin==true)].name}": "b", "{.spec.containers.name}": "", "{.none.none}": "",
	} {
		path, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, v := range path.Find(object) {
			s, _ := Format(v)
			got = append(got, s)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "{}", "{.a", ".a}", "{..a}", "{.a[}", "{.a[x]}", "{.a['b}", "{.a['']}", "{.a[?(b)]}", "{.a[?(@.b==)]}", "{.a[?(@.b==1]}",
		"{.a[0:2]}", "{.a[0,1]}", "{.a b}", "{range .a}", "{." + strings.Repeat("a", maxPath) + "}"} {
		if path, err := Parse(text); err == nil {
			t.Errorf("%s is accepted: %+v", text, path)
		}
	}
}

func FuzzJSONPath(f *testing.F) {
	f.Add("{.a[?(@.b=='c')].d[0][*]}", `{"a":[{"b":"c","d":[[1]]}]}`)
	f.Fuzz(func(t *testing.T, text, object string) {
		path, err := Parse(text)
		if err != nil {
			return
		}
		var v any
		if json.Unmarshal([]byte(object), &v) == nil {
			path.Find(v)
		}
		if len(path) == 0 {
			t.Error("an expression without steps is accepted")
		}
	})
}
