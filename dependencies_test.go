package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write dependencies.txt")

// dependenciesFile is the path of the list of modules that are linked into islet and its shim. A row names the packages of islet that
// import the module. If no package of islet imports the module, the row names the modules that import it. A change of the file is reviewed
// like code.
const dependenciesFile = "dependencies.txt"

// A goPackage has the fields of go list for a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Standard   bool
	Module     *struct{ Path string }
}

// linked returns all packages that are linked into a program for Linux, by import path.
func linked(t *testing.T, program string) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Standard,Module", program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// TestDependencies compares the linked modules with the reviewed list.
func TestDependencies(t *testing.T) {
	now := "# Every module that is linked into islet, with the packages of islet that import it, or else (by ...)\n# the modules that import it. Update the list with: go test -run TestDependencies -update .\n" +
		importers(linked(t, ".")) +
		"\n# The same list for the shim, which islet embeds.\n" +
		importers(linked(t, "./runtime/shim/cmd"))
	if *update {
		if err := os.WriteFile(dependenciesFile, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(dependenciesFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(stored) != now {
		t.Errorf("%s differs from the linked modules: review the difference, then run go test -run TestDependencies -update .\nnow:\n%s",
			dependenciesFile, now)
	}
}

// importers returns one line for each external module of the given packages. The line contains the module's path and its importers.
func importers(packages map[string]goPackage) string {
	rooms, modules := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, p := range packages {
		for _, imp := range p.Imports {
			q := packages[imp]
			if q.Standard || q.Module == nil || q.Module.Path == module || p.Module == nil || p.Module.Path == q.Module.Path {
				continue
			}
			by, name := modules, p.Module.Path
			if p.Module.Path == module {
				by, name = rooms, short(p.ImportPath)
			}
			if by[q.Module.Path] == nil {
				by[q.Module.Path] = map[string]bool{}
			}
			by[q.Module.Path][name] = true
		}
	}
	var b strings.Builder
	for _, m := range slices.Sorted(maps.Keys(union(rooms, modules))) {
		if by := slices.Sorted(maps.Keys(rooms[m])); len(by) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", m, strings.Join(by, " "))
		} else {
			fmt.Fprintf(&b, "%s: by %s\n", m, strings.Join(slices.Sorted(maps.Keys(modules[m])), " "))
		}
	}
	return b.String()
}

func union(a, b map[string]map[string]bool) map[string]bool {
	out := map[string]bool{}
	for _, m := range []map[string]map[string]bool{a, b} {
		for k := range m {
			out[k] = true
		}
	}
	return out
}

// TestHomes checks modules that link a heavy dependency. Only packages in the home folders of the dependency may import such a module. An
// islet package is checked without the dependencies of the islet packages that it imports.
func TestHomes(t *testing.T) {
	all := linked(t, ".")
	for path, p := range all {
		if p.Module == nil || p.Module.Path != module {
			continue
		}
		reached := map[string]string{} // by package: the package that imports it
		var walk func(string)
		walk = func(from string) {
			for _, imp := range all[from].Imports {
				q := all[imp]
				if _, seen := reached[imp]; seen || q.Standard || q.Module == nil || q.Module.Path == module {
					continue
				}
				reached[imp] = from
				walk(imp)
			}
		}
		walk(path)
		for imp := range reached {
			for dep, home := range homes {
				if under(imp, []string{dep}) && !under(short(path), home) {
					t.Errorf("%q brings in %s by %s, whose home is %q", short(path), imp, reached[imp], home)
				}
			}
		}
	}
}
