package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unracedLine is the line of the Makefile with the packages that the race detector does not instrument.
var unracedLine = regexp.MustCompile(`(?m)^UNRACED := (.+)$`)

// TestUnraced checks the packages that the race detector does not instrument. They must not use generic code with atomics that other
// packages use too. Go compiles such code once for each package, and the linker keeps one copy. If the linker keeps a copy without
// instrumentation, the detector reports false races in the other packages.
func TestUnraced(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := unracedLine.FindSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile has no UNRACED")
	}
	patterns := strings.Fields(string(line[1]))
	looked := 0
	for _, p := range linked(t, ".") {
		if !slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p.ImportPath) }) {
			continue
		}
		for _, name := range p.GoFiles {
			looked++
			for _, use := range sharedAtomics(t, filepath.Join(p.Dir, name)) {
				t.Errorf("%s: remove package %s from UNRACED in the Makefile", use, p.ImportPath)
			}
		}
	}
	if looked < 50 {
		t.Fatalf("only %d files were searched", looked)
	}
}

// TestSharedAtomics checks that sharedAtomics finds each kind of use.
func TestSharedAtomics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	src := `package a
import ("sync"; "sync/atomic"; "time"; "unique")
type local struct{ x int }
var (
	m sync.Map
	f = sync.OnceValue(func() int { return 1 })
	foreign atomic.Pointer[time.Time]
	number atomic.Pointer[int]
	own atomic.Pointer[local]
	mu sync.Mutex
	n atomic.Int64
	h = unique.Make("a")
)
`
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	uses := sharedAtomics(t, file)
	for i, want := range []string{"a.go:5:", "a.go:6:", "a.go:7:", "a.go:8:", "a.go:12:"} {
		if i >= len(uses) || !strings.Contains(uses[i], want) {
			t.Fatalf("uses: %q, the one with number %d must be in %s", uses, i, want)
		}
	}
	if len(uses) != 5 {
		t.Errorf("uses: %q", uses)
	}
}

// matches reports whether a pattern of go list, of the forms path and path/..., matches an import path.
func matches(pattern, path string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == parent || strings.HasPrefix(path, parent+"/")
	}
	return path == pattern
}

// sharedAtomics returns the positions in a file that use generic code of the standard library with atomics. It omits atomic.Pointer of a
// type of the file's package, because other packages have no copy of that code.
func sharedAtomics(t *testing.T, file string) []string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	own := map[ast.Expr]bool{}
	var uses []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr:
			if arg, ok := n.Index.(*ast.Ident); ok && !predeclared[arg.Name] {
				own[n.X] = true
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch name := x.Name + "." + n.Sel.Name; {
			case name == "sync.Map", name == "unique.Make", strings.HasPrefix(name, "sync.OnceValue"),
				name == "atomic.Pointer" && !own[n]:
				uses = append(uses, fset.Position(n.Pos()).String()+" uses "+name)
			}
		}
		return true
	})
	return uses
}

// predeclared contains types of Go that belong to no package. A pointer usually refers to one of these types.
var predeclared = map[string]bool{"any": true, "bool": true, "error": true, "int": true, "int32": true, "int64": true,
	"string": true, "uint": true, "uint32": true, "uint64": true}
