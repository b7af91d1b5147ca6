package crisuite_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This path is the root directory of the repository.
const root = "../.."

// This list contains the packages of containerd's CRI with rows in containerd.txt.
var compared = []string{"server", "server/images", "server/podsandbox", "opts", "util", "sputil"}

// TestComparedWithContainerd checks that containerd.txt has exactly one row for each function of containerd's CRI, in the version that
// islet links. A row with the verdict "the same" names a test. Every test that a row names must exist.
func TestComparedWithContainerd(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/containerd/containerd/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	upstream := map[string]bool{}
	for _, dir := range compared {
		functionsOf(t, filepath.Join(strings.TrimSpace(string(out)), "internal", "cri"), dir, upstream)
	}
	if len(upstream) < 300 {
		t.Fatalf("functions of containerd: %d", len(upstream))
	}
	documented := checkRows(t, "containerd.txt")
	for _, f := range slices.Sorted(maps.Keys(upstream)) {
		if !documented[f] {
			t.Errorf("containerd.txt has no row for %s", f)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(documented)) {
		if !upstream[f] {
			t.Errorf("containerd.txt has a row for %s, which containerd does not have", f)
		}
	}
}

// TestComparedWithCRIO checks the rows of crio.txt and the tests in them. It cannot check that the functions exist, because CRI-O is not
// linked.
func TestComparedWithCRIO(t *testing.T) {
	if n := len(checkRows(t, "crio.txt")); n < 200 {
		t.Errorf("%d functions", n)
	}
}

// checkRows checks the rows of a table. It returns the functions in the rows, as "file name".
func checkRows(t *testing.T, file string) map[string]bool {
	t.Helper()
	table, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	tests, name := testsOf(t), regexp.MustCompile(`\bTest[A-Z]\w*(/\w+)?`)
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 4 {
			t.Fatalf("%s: a row with %d cells: %s", file, len(cells), line)
		}
		for f := range strings.SplitSeq(cells[1], ", ") {
			if documented[cells[0]+" "+f] {
				t.Errorf("%s: %s has two rows", cells[0], f)
			}
			documented[cells[0]+" "+f] = true
		}
		named := name.FindAllString(cells[3], -1)
		for _, test := range named {
			if !tests[test] {
				t.Errorf("%s: there is no test %s", cells[0], test)
			}
		}
		switch verdict, reason := cells[2], cells[3]; {
		case verdict == "the same" && len(named) == 0:
			t.Errorf("%s: %s: the verdict is the same, but no test is named", cells[0], cells[1])
		case !slices.Contains([]string{"the same", "differs", "none"}, verdict) || reason == "":
			t.Errorf("%s: %s: the verdict %q needs a reason", cells[0], cells[1], verdict)
		}
	}
	return documented
}

// functionsOf adds the functions and methods of a package to the map, as "file name". Only files that are compiled for Linux count.
func functionsOf(t *testing.T, in, dir string, all map[string]bool) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(in, dir))
	if err != nil {
		t.Fatal(err)
	}
	host := build.Default
	host.GOOS, host.CgoEnabled = "linux", false
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "_test.go") || filepath.Ext(e.Name()) != ".go" {
			continue
		}
		if ok, err := host.MatchFile(filepath.Join(in, dir), e.Name()); err != nil || !ok {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(in, dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all[dir+"/"+e.Name()+" "+f.Name.Name] = true
			}
		}
	}
}

// testsOf returns the names of all tests of this repository. A test of the contract suite has the name TestContract/NAME.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	all, declared, part := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`), regexp.MustCompile(`(?m)^\t\t\{"(\w+)", (?:true|false), test`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		}
		suite := path == filepath.Join(root, "runtime", "crisuite", "suite.go")
		if d.IsDir() || !suite && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(b, -1) {
			all[string(m[1])] = true
		}
		for _, m := range part.FindAllSubmatch(b, -1) {
			if suite {
				all["TestContract/"+string(m[1])] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
