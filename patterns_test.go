package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// TestPatterns checks that no package of islet compiles a regular expression when it is initialized, and that the expressions that are
// compiled later are valid and small. A function may compile an expression whose text is known only when it runs.
func TestPatterns(t *testing.T) {
	checked := 0
	for _, p := range linked(t, ".") {
		if p.Module == nil || p.Module.Path != module {
			continue
		}
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			checkServedFiles(t, file, tree)
			for _, d := range tree.Decls {
				if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.VAR {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					c, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					switch called(c) {
					case "regexp.MustCompile", "regexp.Compile", "regexp.MatchString":
						if p.ImportPath != module+"/internal/pattern" {
							t.Errorf("%s compiles an expression when the package is initialized: use internal/pattern", file)
						}
					case "pattern.New":
						checked++
						checkPattern(t, file, c.Args[0])
					}
					return true
				})
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d expressions were checked", checked)
	}
}

// checkServedFiles checks that files are served over HTTP only by systemFiles of agent/kubelet/server/logs, which opens only regular files
// and directories. The other file systems of the standard library also open FIFOs and devices, which a pod may have created.
func checkServedFiles(t *testing.T, file string, tree *ast.File) {
	t.Helper()
	ast.Inspect(tree, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch name := called(c); name {
		case "http.FileServer", "http.FileServerFS", "http.FS", "http.Dir", "http.ServeFile", "http.ServeFileFS":
			files, _ := c.Args[0].(*ast.CompositeLit)
			if files == nil || types.ExprString(files.Type) != "systemFiles" {
				t.Errorf("%s: %s opens FIFOs and devices: use systemFiles of agent/kubelet/server/logs", file, name)
			}
		}
		return true
	})
}

// called returns the called function, such as regexp.MustCompile.
func called(c *ast.CallExpr) string {
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}

func checkPattern(t *testing.T, file string, e ast.Expr) {
	t.Helper()
	text, ok := constantText(e)
	if !ok {
		t.Errorf("%s: the expression is not a constant", file)
		return
	}
	if _, err := regexp.Compile(text); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	for _, r := range regexp.MustCompile(`\{(?:\d+,)?(\d+)\}`).FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(r[1]); err != nil || n > 128 {
			t.Errorf("%s: %s repeats up to %s times, which needs much memory: check the length in another way", file, text, r[1])
		}
	}
}

// constantText returns the value of a string literal, or of several that are added.
func constantText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		x, isX := constantText(e.X)
		y, isY := constantText(e.Y)
		return x + y, isX && isY && e.Op == token.ADD
	}
	return "", false
}
