package config

import (
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md and the table in SECURITY.md")

const referenceFile = "../../docs/configuration.md"

func TestDocs(t *testing.T) {
	want := Reference()
	if *update {
		if err := os.WriteFile(referenceFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(referenceFile)
	if err != nil || string(have) != want {
		t.Fatalf("docs/configuration.md is stale (%v): go test ./internal/config -run TestDocs -update", err)
	}
}

// leaves returns the JSON paths of a struct's fields. It descends into a struct of another package only if the table describes the fields
// of this struct.
func leaves(t reflect.Type, path string, stop map[string]bool) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if stop[path] || t.Kind() != reflect.Struct || durationIn(reflect.New(t).Elem()) != nil {
		return []string{path}
	}
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case name == "kind" || name == "apiVersion":
		case name == "" && t.Field(i).Anonymous:
			out = append(out, leaves(t.Field(i).Type, path, stop)...)
		default:
			out = append(out, leaves(t.Field(i).Type, joinPath(path, name), stop)...)
		}
	}
	return out
}

func TestEveryFieldIsDescribedOnce(t *testing.T) {
	var have []string
	for _, row := range slices.Concat(kubeletFields(), edgeFields(), optionFields()) {
		if row.what == "" {
			t.Errorf("%s is not described", row.path)
		}
		have = append(have, row.path)
	}
	want := leaves(reflect.TypeFor[settings](), "", map[string]bool{"tracing": true, "logging.options": true})
	for _, p := range want {
		if n := len(slices.DeleteFunc(slices.Clone(have), func(h string) bool { return h != p })); n != 1 {
			t.Errorf("%s is described %d times", p, n)
		}
	}
	for _, p := range have {
		if !slices.Contains(want, p) {
			t.Errorf("%s is not a field", p)
		}
	}
}

func TestEveryFlagBindsOrSaysWhy(t *testing.T) {
	var s settings
	seen := map[string]bool{}
	for _, row := range flagTable() {
		if seen[row.name] {
			t.Errorf("--%s is listed twice", row.name)
		}
		seen[row.name] = true
		if (row.field == "") == (row.none == "") {
			t.Errorf("--%s must either bind to a field or say why not", row.name)
		}
		if row.field != "" && !fieldAt(reflect.ValueOf(&s).Elem(), row.field).IsValid() {
			t.Errorf("--%s binds to %s, which is not a field", row.name, row.field)
		}
	}
}
