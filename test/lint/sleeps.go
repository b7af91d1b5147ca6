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

// sleeps returns the calls of time.Sleep in the tests of a folder that may sleep in real time. In a bubble of package synctest, no real
// time passes. A function runs in a bubble if it is passed to synctest.Test or to a function of the folder that runs it in a bubble, or
// if only such functions call it. A call with a comment on its line is not reported.
func sleeps(dir string) (violations []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	p := pkg{bubbles: map[string]bool{}, real: map[string]bool{}}
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
			p.outside(g, func(n ast.Node) {
				call, ok := n.(*ast.CallExpr)
				if at := set.Position(n.Pos()); ok && nameOfCall(call) == "time.Sleep" && !commented[at.Line] {
					violations = append(violations, fmt.Sprintf("%s:%d: a test sleeps: wait for an event", at.Filename, at.Line))
				}
			})
		}
	}
	return violations, nil
}

// A pkg has the test files of a folder. Functions and methods are identified only by name.
type pkg struct {
	files   []*ast.File
	bubbles map[string]bool // functions that run their argument in a bubble
	real    map[string]bool // functions that may run outside of bubbles
}

// classify finds the functions that create bubbles, and the functions that tests call outside of bubbles.
func (p *pkg) classify() {
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
			p.outside(g, func(n ast.Node) {
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
func (p *pkg) makesBubble(g *ast.FuncDecl) (makes bool) {
	takes := slices.ContainsFunc(g.Type.Params.List, func(f *ast.Field) bool {
		_, ok := f.Type.(*ast.FuncType)
		return ok
	})
	ast.Inspect(g, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		makes = makes || ok && takes && (nameOfCall(call) == "synctest.Test" || p.bubbles[nameOfCall(call)])
		return !makes
	})
	return makes
}

// outside calls f for each node of a function's body that is not in a bubble.
func (p *pkg) outside(g *ast.FuncDecl, f func(ast.Node)) {
	ast.Inspect(g.Body, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		f(n)
		call, ok := n.(*ast.CallExpr)
		return !ok || nameOfCall(call) != "synctest.Test" && !p.bubbles[nameOfCall(call)]
	})
}

// nameOfCall returns the name of the called function in the form f or x.f, or "" if it has no name.
func nameOfCall(call *ast.CallExpr) string {
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
