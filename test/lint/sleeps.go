package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// checkSleeps returns a violation for each call of time.Sleep in the tests of a folder, unless the
// call runs in a bubble of package synctest or has a comment on its line. A function runs in a
// bubble if it is passed to synctest.Test, or to a function of the folder that passes its argument
// to synctest.Test. A function also runs in a bubble if all of its callers run in a bubble.
func checkSleeps(dir string) (violations []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	p := testPackage{bubbles: map[string]bool{}, real: map[string]bool{}}
	for _, path := range paths {
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	p.classify()
	for _, f := range p.files {
		commented := map[int]bool{}
		for _, group := range f.Comments {
			commented[set.Position(group.Pos()).Line] = true
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.FuncDecl)
			if !ok || !p.real[g.Name.Name] {
				continue
			}
			p.visitOutside(g, func(n ast.Node) {
				call, ok := n.(*ast.CallExpr)
				if at := set.Position(n.Pos()); ok && calledName(call) == "time.Sleep" && !commented[at.Line] {
					violations = append(violations, fmt.Sprintf("%s:%d: a test sleeps: wait for an event", at.Filename, at.Line))
				}
			})
		}
	}
	return violations, nil
}

// A testPackage contains the test files of a folder. Functions and methods are identified only by
// name.
type testPackage struct {
	files   []*ast.File
	bubbles map[string]bool // functions that run their argument in a bubble
	real    map[string]bool // functions that may run outside of bubbles
}

// classify finds two kinds of functions: functions that create bubbles, and functions that tests
// call outside of bubbles.
func (p *testPackage) classify() {
	decls := map[string][]*ast.FuncDecl{}
	for _, f := range p.files {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.FuncDecl); ok && g.Body != nil {
				decls[g.Name.Name] = append(decls[g.Name.Name], g)
			}
		}
	}
	for again := true; again; {
		again = false
		for name, all := range decls {
			if p.bubbles[name] || strings.HasPrefix(name, "Test") || !slices.ContainsFunc(all, p.makesBubble) {
				continue
			}
			p.bubbles[name] = true
			again = true
		}
	}
	var visit func(name string)
	visit = func(name string) {
		if p.real[name] {
			return
		}
		p.real[name] = true
		for _, g := range decls[name] {
			p.visitOutside(g, func(n ast.Node) {
				if id, ok := n.(*ast.Ident); ok && decls[id.Name] != nil { // called, or passed as an argument
					visit(id.Name)
				}
			})
		}
	}
	for name := range decls {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
			visit(name)
		}
	}
}

// makesBubble reports whether a function has a parameter of a function type and creates a bubble.
func (p *testPackage) makesBubble(g *ast.FuncDecl) (makes bool) {
	takes := slices.ContainsFunc(g.Type.Params.List, func(f *ast.Field) bool {
		_, ok := f.Type.(*ast.FuncType)
		return ok
	})
	ast.Inspect(g, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		makes = makes || ok && takes && (calledName(call) == "synctest.Test" || p.bubbles[calledName(call)])
		return !makes
	})
	return makes
}

// visitOutside calls f for the syntax nodes of a function's body. It skips the parts of the body
// that run in a bubble.
func (p *testPackage) visitOutside(g *ast.FuncDecl, f func(ast.Node)) {
	ast.Inspect(g.Body, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		f(n)
		call, ok := n.(*ast.CallExpr)
		return !ok || calledName(call) != "synctest.Test" && !p.bubbles[calledName(call)]
	})
}

// calledName returns the name of the called function in the form f or x.f. It returns "" if the function has no name.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}
