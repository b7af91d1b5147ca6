package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// TestLines checks the lines and hints of errors.
func TestLines(t *testing.T) {
	edit := func(old, new string) string { return strings.Replace(web, old, new, 1) }
	second := func(data string) string { return "# two\n" + web + "---\n# the second\n" + data }
	for name, test := range map[string]struct{ data, want string }{
		"misspelled":      {edit("image:", "imagee:"), `pods.yaml:8: spec.containers[0].imagee: unknown field: did you mean "image"?`},
		"case":            {edit("image:", "Image:"), `pods.yaml:8: spec.containers[0].Image: unknown field: did you mean "image"?`},
		"of the root":     {edit("spec:", "spce:"), `pods.yaml:5: spce: unknown field: did you mean "spec"?`},
		"second document": {second(edit("image:", "imagee:")), `pods.yaml:19: document 2: spec.containers[0].imagee: unknown field: did you mean "image"?`},
		"second container": {web + "  - name: b\n    image: b\n    prots: []\n",
			`pods.yaml:11: spec.containers[1].prots: unknown field: did you mean "ports"?`},
		"belongs in spec":       {web + "    hostNetwork: true\n", "pods.yaml:9: spec.containers[0].hostNetwork: unknown field: it belongs in spec"},
		"belongs in metadata":   {web + "labels: {a: b}\n", "pods.yaml:9: labels: unknown field: it belongs in metadata"},
		"belongs in containers": {web + "  image: b\n", "pods.yaml:9: spec.image: unknown field: it belongs in spec.containers"},
		"belongs elsewhere":     {web + "    nodeName: a\n", "pods.yaml:9: spec.containers[0].nodeName: unknown field: it belongs in spec"},
		"unknown":               {web + "    colour: red\n", "pods.yaml:9: spec.containers[0].colour: unknown field"},
		"value":                 {edit("image:", "imagePullPolicy: Sometimes\n    image:"), "pods.yaml:8: pod \"web\": spec.containers[0].imagePullPolicy: "},
		"missing":               {edit("image: example.com/web:1", "stdin: true"), "pods.yaml:7: pod \"web\": spec.containers[0].image: Required value"},
		"label": {edit("name: web\nspec", "name: web\n  labels:\n    a: b\n    example.com/a: x y\nspec"),
			"pods.yaml:5: pod \"web\": metadata.labels: "},
		"resource": {edit("image:", "resources:\n      limits:\n        cpu: few\n    image:"), "pods.yaml:10: spec.containers[0].resources.limits[cpu]: "},
		"quantity": {edit("image:", "resources:\n      limits:\n        memory: 512MB\n    image:"),
			`pods.yaml:10: spec.containers[0].resources.limits[memory]: Invalid value: "512MB" is not a quantity: did you mean 512M?`},
		"flow style":   {`--- {apiVersion: v1, kind: Pod,` + "\n" + `metadata: {name: a}, spec: {containers: [{name: a,` + "\nimag: a}]}}", "pods.yaml:3: spec.containers[0].imag: "},
		"JSON":         {named("a") + "\n" + strings.ReplaceAll(named("b"), `"image"`, "\n\n\"imag\""), "pods.yaml:4: document 2: spec.containers[0].imag: "},
		"list":         {"apiVersion: v1\nkind: List\nitems:\n- " + named("a") + "\n- kind: Pod\n  apiVersion: v1\n  metadata: {nam: b}\n", "pods.yaml:7: items[1]: metadata.nam: "},
		"no kind":      {second("apiVersion: v1\n"), "pods.yaml:12: document 2: kind: Required value"},
		"CRLF":         {strings.ReplaceAll(edit("image:", "imagee:"), "\n", "\r\n"), "pods.yaml:8: spec.containers[0].imagee"},
		"tab":          {edit("    image:", "\timage:"), "pods.yaml:8: is indented with a tab, but YAML permits only spaces"},
		"tab at first": {edit("  name: web", "\tname: web"), "pods.yaml:4: is indented with a tab, but YAML permits only spaces"},
		"Helm":         {edit("example.com/web:1", "{{ .Values.image }}"), "pods.yaml:8: "},
		"template of a number": {edit("image:", "ports:\n    - containerPort: ${PORT}\n    image:"),
			"pods.yaml:9: spec.containers[0].ports[0].containerPort: Invalid value: must be a whole number, not string" + notFilledIn},
		"template of a name": {edit("  name: web", "  name: <NAME>"), "pods.yaml:4: pod \"<NAME>\": metadata.name: Invalid value: "},
		"Compose":            {"services:\n  web:\n    image: web\n", "pods.yaml:1: services: this is a Compose file"},
		"Compose with more":  {"version: '3'\nname: x\nservices:\n  web:\n    image: web\n", "pods.yaml:3: services: this is a Compose file"},
		"chart":              {"apiVersion: v2\nname: a\nversion: 1.0.0\n", "pods.yaml:1: this is a chart of Helm"},
		"kustomization":      {"resources:\n- a.yaml\n", "pods.yaml:1: this is a kustomization"},
		"configuration": {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "pods.yaml:2: kind: Unsupported value: \"KubeletConfiguration\": " +
			"only Pods, ConfigMaps, Secrets and PersistentVolumeClaims come from manifests; a configuration is tried with 'islet config apply FILE'"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(test.data), localOptions())
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			filled := strings.Contains(test.data, "{{") || strings.Contains(test.data, "${") || strings.Contains(test.data, "<NAME>")
			if err != nil && filled != strings.Contains(err.Error(), notFilledIn) {
				t.Errorf("a template: %v: %v", filled, err)
			}
		})
	}
}

// TestLinesOfManyErrors checks that the lines of many errors in a large document are found in reasonable time.
func TestLinesOfManyErrors(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels:\n")
	for i := range 9000 {
		fmt.Fprintf(&b, "    a%d: b\n", i)
	}
	b.WriteString("spec:\n  containers:\n")
	for i := range 500 {
		fmt.Fprintf(&b, "  - {name: c%d, imag: b}\n", i)
	}
	_, err := Decode([]byte(b.String()), localOptions())
	list := ErrorsIn(err)
	if len(list) != maxErrors {
		t.Fatalf("%d errors", len(list))
	}
	for i, e := range list {
		if e.Line != 9008+i {
			t.Errorf("%v, want line %d", e, 9008+i)
		}
	}
}
