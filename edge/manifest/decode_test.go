package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/growthtest"
	"github.com/islet-edge/islet/internal/keys"
)

const web = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: example.com/web:1
`

// named returns a small pod in one line that is valid YAML and valid JSON.
func named(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"a","image":"a"}]}}`, name)
}

func fileOptions() Options {
	return Options{Origin: "/etc/islet/web.yaml", Source: keys.SourceFile, NodeName: "node-1"}
}

func localOptions() Options {
	return Options{Origin: "pods.yaml", Source: keys.SourceLocal, NodeName: "node-1", Lists: true}
}

func TestDocuments(t *testing.T) {
	one, two := named("one"), named("two")
	for name, test := range map[string]struct{ data, want string }{
		"nothing":                 {"", ""},
		"only space":              {" \n\t\n", ""},
		"only comments":           {"# a\n---\n# b\n", ""},
		"one":                     {web, "web"},
		"byte order mark":         {"\ufeff" + one, "one"},
		"carriage returns":        {strings.ReplaceAll(web, "\n", "\r\n"), "web"},
		"two of YAML":             {"---\n" + web + "---\n" + two, "web two"},
		"two of JSON":             {one + "\n" + two, "one two"},
		"empty one between":       {web + "---\n---\n# nothing\n--- # more\n" + two + "\n---\n", "web two"},
		"text behind separator":   {"--- " + one + "\n", "one"},
		"end mark":                {web + "...\n---\n" + two, "web two"},
		"directive":               {"%YAML 1.1\n---\n" + web, "web"},
		"dashes in a block":       {strings.Replace(web, "spec:", "  annotations:\n    a: |\n      ---\n      b\nspec:", 1), "web"},
		"list":                    {`{"apiVersion":"v1","kind":"List","items":[` + one + `,` + two + `]}`, "one two"},
		"pod list":                {`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[` + one + `]}`, "one"},
		"pod list without kinds":  {`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"x"},"spec":{"containers":[{"name":"a","image":"a"}]}}]}`, "x"},
		"empty list":              {`{"apiVersion":"v1","kind":"List"}`, ""},
		"list and pod":            {"apiVersion: v1\nkind: List\nitems: [" + one + "]\n---\n" + two, "one two"},
		"anchors":                 {"apiVersion: v1\nkind: Pod\nmetadata: {name: &n web}\nspec: {containers: [{name: *n, image: *n}]}", "web"},
		"merge keys":              {"apiVersion: v1\nkind: List\nitems:\n- &p {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}\n- <<: *p\n  metadata: {name: b}\n", "a b"},
		"numbers and bools as is": {strings.Replace(web, "image:", "stdin: yes\n    image:", 1), "web"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Decode([]byte(test.data), localOptions())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, pod := range set.Pods {
				names = append(names, pod.Name)
				if pod.Kind != "Pod" || pod.APIVersion != "v1" {
					t.Errorf("%s is %s %s", pod.Name, pod.APIVersion, pod.Kind)
				}
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

var lineNumber = regexp.MustCompile(`(?m)^(pods\.yaml):\d+:`)

// TestRefused checks the error message of each invalid manifest.
func TestRefused(t *testing.T) {
	edit := func(old, new string) string { return strings.Replace(web, old, new, 1) }
	for name, test := range map[string]struct{ data, want string }{
		"not UTF-8":          {"a: \xff", "pods.yaml: is not UTF-8 text"},
		"UTF-16":             {"\xff\xfe{\x00}\x00", "pods.yaml: is not UTF-8 text"},
		"too large":          {strings.Repeat(" ", MaxSize+1), "pods.yaml: is larger than 3145728 bytes"},
		"too much YAML":      {"a: " + strings.Repeat("b", maxYAML), "pods.yaml: is larger than 1048576 bytes of YAML"},
		"too many documents": {strings.Repeat("---\na\n", maxDocuments+1), "pods.yaml: contains more than 1000 documents"},
		"too many in JSON":   {strings.Repeat("{}", maxDocuments+1), "pods.yaml: contains more than 1000 documents"},
		"deep JSON": {strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70),
			"pods.yaml: is nested more than 64 levels deep"},
		"deep YAML": {"x: " + strings.Repeat("[", 70) + strings.Repeat("]", 70),
			"pods.yaml: is nested more than 64 levels deep"},
		"too many objects": {`{"spec":[` + strings.Repeat("{},", maxObjects) + `{}]}`, "pods.yaml: contains more than 20000 objects"},
		"too many in all": {strings.Repeat(`{"spec":[`+strings.Repeat("{},", maxObjects/2)+`{}]}`, 2),
			"pods.yaml: document 1: kind: Required value: this must be a Pod, ConfigMap, Secret or PersistentVolumeClaim\npods.yaml: document 2: contains more than 20000 objects"},
		"bomb of aliases": {bomb(), "pods.yaml: document contains excessive aliasing"},
		"bomb of one long text": {"a: &a " + strings.Repeat("x", 1<<16) + "\nb: [" + strings.Repeat("*a,", 1<<10) + "]",
			"pods.yaml: is larger than 3145728 bytes with its aliases written out"},
		"alias of itself":   {"a: &a [*a]", "pods.yaml: anchor 'a' value contains itself"},
		"half-written JSON": {named("a")[:50], "pods.yaml: JSON ends early: unexpected EOF"},
		"wrong JSON":        {"{\n\"a\": 1,\n}", "pods.yaml: invalid character '}' looking for beginning of object key string"},
		"wrong YAML":        {web + "---\na: b: c", "pods.yaml: document 2: mapping values are not allowed in this context"},
		"tab":               {"a:\n\tb: c", "pods.yaml: is indented with a tab, but YAML permits only spaces"},
		"duplicate key": {edit("  name: web\n", "  name: web\n  name: web\n"),
			`pods.yaml: key "name" already set in map`},
		"duplicate beside merge": {"a: &a {b: c}\nd: {<<: *a, b: e, f: g,\n f: h}", `pods.yaml: key "f" already set in map`},
		"merge twice":            {"a: &a {b: c}\nd:\n  <<: *a\n  <<: *a\n", `pods.yaml: key "<<" already set in map`},
		"duplicate number":       {"1: a\n'1': b", `pods.yaml: key "1" already set in map`},
		"duplicate in JSON": {strings.Replace(named("a"), `"image"`, `"name":"b","image"`, 1),
			"pods.yaml: spec.containers[0].name: duplicate field"},
		"strange key": {"[a]: b", "pods.yaml: invalid map key: []interface {}{\"a\"}"},
		"no number":   {"a: .nan", "pods.yaml: the number NaN has no place in a manifest"},
		"text":        {"hello", "pods.yaml: is not a Kubernetes object with apiVersion and kind"},
		"null":        {"null", "pods.yaml: is not a Kubernetes object with apiVersion and kind"},
		"array":       {"[]", "pods.yaml: is not a Kubernetes object with apiVersion and kind"},
		"no kind":     {"apiVersion: v1", "pods.yaml: kind: Required value: this must be a Pod, ConfigMap, Secret or PersistentVolumeClaim"},
		"no version":  {"kind: Pod", "pods.yaml: apiVersion: Required value: a Pod is v1"},
		"another kind": {"apiVersion: apps/v1\nkind: Deployment",
			`pods.yaml: kind: Unsupported value: "Deployment": only Pods, ConfigMaps, Secrets and PersistentVolumeClaims come from manifests; write it as 'apiVersion: v1, kind: Pod, metadata: {name: NAME}', with metadata.labels and spec of its spec.template`},
		"another version": {edit("v1", "v2"), `pods.yaml: apiVersion: Unsupported value: "v2": a Pod is v1`},
		"another list":    {"apiVersion: v2\nkind: List", `pods.yaml: apiVersion: Unsupported value: "v2": a List is v1`},
		"no name":         {edit("name: web", "labels: {}"), "pods.yaml: metadata.name: Required value"},
		"unknown field":   {edit("image:", "imagee:"), "pods.yaml: spec.containers[0].imagee: unknown field"},
		"case of a field": {edit("image:", "Image:"), "pods.yaml: spec.containers[0].Image: unknown field"},
		"number for text": {edit("example.com/web:1", "1.5"),
			"pods.yaml: spec.containers[0].image: Invalid value: must be a string (in quotes), not number"},
		"text for number": {edit("image:", "ports: [{containerPort: http}]\n    image:"),
			"pods.yaml: spec.containers[0].ports[0].containerPort: Invalid value: must be a whole number, not string"},
		"text for bool": {edit("image:", "stdin: maybe\n    image:"),
			"pods.yaml: spec.containers[0].stdin: Invalid value: must be true or false, not string"},
		"text for list": {edit("image:", "command: sh\n    image:"),
			"pods.yaml: spec.containers[0].command: Invalid value: must be a list, not string"},
		"text for object": {edit("image:", "resources: few\n    image:"),
			"pods.yaml: spec.containers[0].resources: Invalid value: must be an object, not string"},
		"number for label": {edit("name: web\nspec", "name: web\n  labels: {a: 1}\nspec"),
			"pods.yaml: metadata.labels[a]: Invalid value: must be a string (in quotes), not number"},
		"no quantity": {edit("image:", "resources: {limits: {cpu: few}}\n    image:"),
			"pods.yaml: spec.containers[0].resources.limits[cpu]: Invalid value: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
		"invalid pod": {edit("image:", "imagePullPolicy: Sometimes\n    image:"),
			`pods.yaml: pod "web": spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`},
		"second document": {web + "---\n" + edit("image:", "imagee:"),
			"pods.yaml: document 2: spec.containers[0].imagee: unknown field"},
		"item of list":    {`{"apiVersion":"v1","kind":"List","items":[` + named("a") + `,null,{"kind":"Service","apiVersion":"v1"}]}`, "pods.yaml: items[1]: is not a Kubernetes object with apiVersion and kind\npods.yaml: items[2]: kind: Unsupported value: \"Service\": only Pods, ConfigMaps, Secrets and PersistentVolumeClaims come from manifests"},
		"unknown in list": {`{"apiVersion":"v1","kind":"List","item":[]}`, "pods.yaml: item: unknown field"},
		"same pod twice": {named("a") + named("a"),
			`pods.yaml: pod "a": metadata.name: Duplicate value: namespace "default" has this pod twice`},
		"several errors": {edit("image: example.com/web:1", "imagePullPolicy: X"),
			"pods.yaml: pod \"web\": spec.containers[0].image: Required value\npods.yaml: pod \"web\": spec.containers[0].imagePullPolicy: Unsupported value: \"X\": supported values: \"Always\", \"IfNotPresent\", \"Never\""},
		"escapes for a terminal": {`{"apiVersion":"v1","kind":"Pod","` + `\u001b[2J":1}`,
			"pods.yaml: �[2J: unknown field\npods.yaml: metadata.name: Required value"},
		"service account": {edit("spec:", "spec:\n  serviceAccountName: robot"),
			`pods.yaml: pod "web": spec.serviceAccountName: Forbidden: a static pod may not refer to a service account of the API`},
		"service account's alias": {edit("spec:", "spec:\n  serviceAccount: robot"),
			`pods.yaml: pod "web": spec.serviceAccountName: Forbidden: a static pod may not refer to a service account of the API`},
		"scheduling gate": {edit("spec:", "spec:\n  schedulingGates: [{name: a}]"),
			`pods.yaml: pod "web": spec.schedulingGates: Forbidden: cannot be set on a pod that already has a node, such as a static pod`},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Decode([]byte(test.data), localOptions())
			if err == nil || !set.IsEmpty() {
				t.Fatalf("got %d pods and error %v", len(set.Pods), err)
			}
			text := lineNumber.ReplaceAllString(err.Error(), "$1:") // TestLines checks them
			if !strings.HasPrefix(text, test.want) && strings.Split(test.want, "\n")[0] != text {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
			for _, e := range ErrorsIn(err) {
				if e.Origin != "pods.yaml" {
					t.Errorf("origin %q of %v", e.Origin, e)
				}
			}
		})
	}
}

// bomb returns nested YAML aliases whose size doubles nine times.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return b.String()
}

// TestFileOfPods checks that a file can have several pods, each in a YAML document. An error contains the number of the document.
func TestFileOfPods(t *testing.T) {
	for _, data := range []string{"---\n{apiVersion: v1, kind: List}", `{"apiVersion":"v1","kind":"PodList"}`} {
		if set, err := Decode([]byte(data), fileOptions()); err == nil ||
			!strings.Contains(err.Error(), ": only Pods and the objects they use are allowed here") {
			t.Errorf("got %d pods and %v of %s", len(set.Pods), err, data)
		}
	}
	set, err := Decode([]byte("# two pods\n"+web+"---\n"+strings.Replace(web, "name: web", "name: other", 1)+"---\n"), fileOptions())
	pods := set.Pods
	if err != nil || len(pods) != 2 || pods[0].UID == pods[1].UID || pods[0].Name == pods[1].Name {
		t.Errorf("two documents: %v, %v", pods, err)
	}
	alone := decodeOne(t, web, fileOptions())
	if alone.UID != pods[0].UID {
		t.Error("a pod must stay the same when another is added to its file")
	}
	for data, want := range map[string]string{
		web + "---\n" + web: "twice",
		web + "---\n" + strings.Replace(web, "image:", "imagee:", 1):           ": document 2",
		web + "---\n" + strings.Replace(web, "name: web", "name: Bad_Name", 1): ": document 2, pod \"Bad_Name\"",
		web + "---\nkind: Service\napiVersion: v1\n":                           ": document 2",
	} {
		if set, err := Decode([]byte(data), fileOptions()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %d pods and %v, want %q, of %s", len(set.Pods), err, want, data)
		}
	}
	decodeOne(t, "# nothing\n---\n"+web+"---\n\n", fileOptions())
}

func TestErrorIsFound(t *testing.T) {
	_, err := Decode([]byte("{}"), fileOptions())
	var e *Error
	if !errors.As(err, &e) || e.Field != "kind" || e.Origin != "/etc/islet/web.yaml" {
		t.Errorf("got %#v", e)
	}
	if ErrorsIn(nil) != nil || ErrorsIn(errors.New("another")) != nil {
		t.Error("All returned errors of another origin")
	}
}

// TestLongText checks that the error for a long manifest is short.
func TestLongText(t *testing.T) {
	_, err := Decode([]byte(named(strings.Repeat("ä", 1<<16))), localOptions())
	for _, e := range ErrorsIn(err) {
		if len(e.Error()) > 3*maxText+100 {
			t.Errorf("error of %d bytes", len(e.Error()))
		}
	}
	many := strings.Repeat(`{"name":"A","image":""},`, 1000)
	_, err = Decode([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[`+strings.TrimSuffix(many,
		",")+`]}}`), localOptions())
	if n := len(ErrorsIn(err)); n != maxErrors {
		t.Errorf("got %d errors", n)
	}
}

// TestHugeIsQuick checks that the slowest manifests do not take quadratic time. A source reads its manifests one after the other.
func TestHugeIsQuick(t *testing.T) {
	for name, c := range map[string]struct {
		most int
		text func(n int) string
	}{
		"empty documents": {MaxSize / 4, func(n int) string { return strings.Repeat("---\n", n) }},
		"maps":            {maxYAML / 4, func(n int) string { return "a: [" + strings.Repeat("{},", n) + "]" }},
		"lines":           {MaxSize, func(n int) string { return strings.Repeat("\n", n) }},
		"quotes":          {maxYAML / 3, func(n int) string { return `"` + strings.Repeat(`\"`, n) + `"` }},
		"indents":         {9000, func(n int) string { return strings.Repeat("- ", n) }},
	} {
		t.Run(name, func(t *testing.T) {
			growthtest.Linear(t, c.most/growthtest.Factor, func(n int) { _, _ = Decode([]byte(c.text(n)), localOptions()) })
		})
	}
}
