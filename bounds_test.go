package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bounded lists the types whose zero value accepts megabytes of headers, with the fields that every literal of the type must set. Each
// header line becomes an entry of a map.
var bounded = map[string][]string{
	"net/http.Transport": {"MaxResponseHeaderBytes"},
	"net/http.Server":    {"MaxHeaderBytes", "ReadHeaderTimeout"},
}

// TestHTTPBounds checks that every HTTP client and server limits the size of headers.
func TestHTTPBounds(t *testing.T) {
	looked := 0
	for folder := range shippedFolders(t) {
		for _, f := range sources(t, folder) {
			ast.Inspect(f.File, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				s, ok := lit.Type.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := s.X.(*ast.Ident)
				if !ok {
					return true
				}
				for _, field := range bounded[f.packages[x.Name]+"."+s.Sel.Name] {
					looked++
					if !slices.ContainsFunc(lit.Elts, func(e ast.Expr) bool {
						kv, ok := e.(*ast.KeyValueExpr)
						key, named := kv.Key.(*ast.Ident)
						return ok && named && key.Name == field
					}) {
						t.Errorf("%s: a %s.%s without %s", f.name, x.Name, s.Sel.Name, field)
					}
				}
				return true
			})
		}
	}
	if looked < 8 {
		t.Errorf("only %d fields were found", looked)
	}
}

// A source is a parsed Go file of a shipped program.
type source struct {
	*ast.File
	name     string
	packages map[string]string // import paths by their names in the file
}

// sources parses the files of a folder without its tests.
func sources(t *testing.T, folder string) (all []source) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(filepath.FromSlash(folder), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{f, name, importNames(t, name, f)})
	}
	return all
}

// importNames returns the import paths of a file by their local names.
func importNames(t *testing.T, name string, f *ast.File) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, i := range f.Imports {
		imp, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		as := path.Base(imp)
		switch {
		case i.Name != nil:
			as = i.Name.Name
		case imp == "github.com/containernetworking/cni/pkg/types/100":
			as = "types100"
		}
		if as == "." {
			t.Errorf("%s imports %s without a name, so its decoders are not seen", name, imp)
		}
		names[as] = imp
	}
	return names
}
