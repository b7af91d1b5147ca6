package packaging

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const role = "ansible/roles/islet/"

// glob returns the files that match any of the patterns. Each pattern must match a file.
func glob(t *testing.T, patterns ...string) (files []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files: %v", p, err)
		}
		files = append(files, found...)
	}
	return files
}

// TestFleetFiles checks that the files of the Ansible role and the user-data of cloud-init are YAML without duplicate keys.
func TestFleetFiles(t *testing.T) {
	for _, file := range glob(t, "ansible/*.yaml", "ansible/.yamllint", role+"*/*.yaml", "cloud-init/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var document any
		if err := yaml.UnmarshalStrict(data, &document); err != nil || document == nil {
			t.Errorf("%s: %v: %v", file, document, err)
		}
	}
}

var (
	roleVariable = regexp.MustCompile(`\bislet_[a-z_]*[a-z]\b`)
	setVariable  = regexp.MustCompile(`(?m)^ *(?:register: (islet_[a-z_]+)$|(islet_[a-z_]+): )`)
)

// undefined returns the variables of a role that its files use, but that neither its defaults nor its tasks set.
func undefined(files map[string][]byte, defaults map[string]any) []string {
	known := maps.Clone(defaults)
	for _, data := range files {
		for _, m := range setVariable.FindAllSubmatch(data, -1) {
			known[string(m[1])+string(m[2])] = nil
		}
	}
	missing := map[string]bool{}
	for _, data := range files {
		for _, name := range roleVariable.FindAll(data, -1) {
			if _, ok := known[string(name)]; !ok {
				missing[string(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// TestRoleVariables checks that every variable in the tasks has a default or is set by a task, and that the tasks use every default and the
// README explains it.
func TestRoleVariables(t *testing.T) {
	var defaults map[string]any
	readYAML(t, role+"defaults/main.yaml", &defaults)
	files := map[string][]byte{}
	for _, file := range glob(t, role+"tasks/*.yaml", role+"handlers/*.yaml", role+"templates/*", role+"defaults/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAll(data, nil)
	}
	delete(files, role+"defaults/main.yaml") // it would set each of its variables
	if names := undefined(files, defaults); len(names) > 0 {
		t.Errorf("no default and no task sets %v", names)
	}
	if names := undefined(map[string][]byte{"": []byte("when: islet_absent and islet_set\nregister: islet_set\n")}, nil); !slices.Equal(names, []string{"islet_absent"}) {
		t.Errorf("undefined finds %v", names)
	}
	readme, err := os.ReadFile("ansible/README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Join(slices.Collect(maps.Values(files)), nil)
	for name := range defaults {
		if !regexp.MustCompile(`\b` + name + `\b`).Match(all) {
			t.Errorf("no task uses %s", name)
		}
		if !strings.Contains(string(readme), "| `"+name+"` |") {
			t.Errorf("the README does not explain %s", name)
		}
	}
}
