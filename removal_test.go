package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneRemoval checks that only one package removes directory trees. That package stops at mount points, while os.RemoveAll and the
// method of os.Root descend into mounted file systems. edge and net are exempt, because nothing is mounted in their directories.
func TestOneRemoval(t *testing.T) {
	looked := 0
	for _, top := range []string{"agent", "runtime"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if r := filepath.ToSlash(filepath.Dir(path)); r == "runtime/mounts" || helpsTests(r) || r == "runtime/crisuite" {
				return nil
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			looked++
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "RemoveAll" {
					if x, ok := s.X.(*ast.Ident); !ok || x.Name != "mounts" {
						t.Errorf("%s removes a tree itself: use runtime/mounts, which stops at mount points", fset.Position(n.Pos()))
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 100 {
		t.Fatalf("only %d files were searched", looked)
	}
}
