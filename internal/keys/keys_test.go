package keys_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnePlace checks that no other package contains the text of a key. The keys are defined in this package or exported by k8s.io/api.
func TestOnePlace(t *testing.T) {
	set := token.NewFileSet()
	parse := func(path string) *ast.File {
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	literals := func(f *ast.File, see func(*ast.BasicLit)) {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				see(l)
			}
			_, imports := n.(*ast.ImportSpec)
			return !imports
		})
	}
	ours := map[string]bool{`"kubernetes.io/config.mirror"`: true, `"io.kubernetes.pod.name"`: true, `"io.kubernetes.pod.namespace"`: true,
		`"io.kubernetes.pod.uid"`: true, `"io.kubernetes.container.name"`: true}
	literals(parse("keys.go"), func(l *ast.BasicLit) { ours[l.Value] = true })
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "../../test" || path == "../../internal/keys" || strings.HasPrefix(d.Name(), ".") && path != "../.."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		seen++
		literals(parse(path), func(l *ast.BasicLit) {
			if ours[l.Value] {
				t.Errorf("%s: take %s from package keys", set.Position(l.Pos()), l.Value)
			}
		})
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d files, %v", seen, err)
	}
}
