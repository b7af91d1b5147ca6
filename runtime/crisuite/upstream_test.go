package crisuite

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

// The path root is the root directory of the repository.
const root = "../.."

// The list compared contains the packages of containerd's CRI that docs/cri.md covers.
var compared = []string{"server", "server/images", "server/podsandbox", "opts", "util", "sputil"}

// TestComparedWithContainerd checks that docs/cri.md has a row for each function of containerd's
// CRI in the linked version, and no other rows. A row with the verdict "the same" must name a test,
// and each named test must exist.
func TestComparedWithContainerd(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/containerd/containerd/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	upstream := map[string]bool{}
	for _, dir := range compared {
		functionsOf(t, filepath.Join(strings.TrimSpace(string(out)), "internal", "cri"), dir, upstream)
	}
	doc, err := os.ReadFile("../../docs/cri.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(doc), "\n### Function by function\n")
	if !found || len(upstream) < 300 {
		t.Fatalf("the table exists: %t; functions of containerd: %d", found, len(upstream))
	}
	documented := checkRows(t, table)
	for _, f := range slices.Sorted(maps.Keys(upstream)) {
		if !documented[f] {
			t.Errorf("docs/cri.md has no row for containerd's %s", f)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(documented)) {
		if !upstream[f] {
			t.Errorf("docs/cri.md has a row for %s, which containerd does not have", f)
		}
	}
}

// TestComparedWithCRIO checks docs/cri-o.md in the same way. It does not check whether the functions exist, because CRI-O is not linked.
func TestComparedWithCRIO(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cri-o.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "\n## Function by function\n")
	if n := len(checkRows(t, table)); n < 200 {
		t.Errorf("%d functions", n)
	}
}

// checkRows checks the rows of a table of functions, and returns the functions in the form "file
// name".
func checkRows(t *testing.T, table string) map[string]bool {
	t.Helper()
	documented := map[string]bool{}
	tests, name, quoted := testsOf(t), regexp.MustCompile(`^Test[A-Z]\w*(/\w+)?$`), regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		file := strings.Trim(cells[1], " `")
		for _, f := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if documented[file+" "+f[1]] {
				t.Errorf("%s: %s has two rows", file, f[1])
			}
			documented[file+" "+f[1]] = true
		}
		named := 0
		for _, q := range quoted.FindAllStringSubmatch(cells[4], -1) {
			if !name.MatchString(q[1]) {
				continue
			}
			named++
			if !tests[q[1]] {
				t.Errorf("%s: there is no test %s", file, q[1])
			}
		}
		switch verdict, reason := strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4]); {
		case verdict == "the same" && named == 0:
			t.Errorf("%s:%s: the verdict is the same, but no test is named", file, cells[2])
		case !slices.Contains([]string{"the same", "differs", "none"}, verdict) || reason == "":
			t.Errorf("%s:%s: the verdict %q needs a reason", file, cells[2], verdict)
		}
	}
	return documented
}

// functionsOf adds to all the functions and methods that a package has on Linux, in the form "file name".
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

// testsOf returns the names of the tests of this repository. Tests of the contract suite have the
// form TestContract/NAME.
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
