package main

import (
	"fmt"
	"go/ast"
	"go/token"
)

// readsFrom are types with a method ReadFrom.
var readsFrom = map[string]bool{
	"bufio.ReadWriter": true, "bufio.Writer": true, "bytes.Buffer": true, "io.ReaderFrom": true, "net.TCPConn": true, "net.UnixConn": true,
	"os.File": true,
}

// checkEmbedded returns a violation for each type of a file that has a method Write, embeds a type
// with a method ReadFrom, and has no method ReadFrom of its own.
func checkEmbedded(path string, set *token.FileSet, f *ast.File) (violations []string) {
	methods := map[string]map[string]bool{}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.FuncDecl); ok && g.Recv != nil && len(g.Recv.List) == 1 {
			name := nameOf(g.Recv.List[0].Type)
			if methods[name] == nil {
				methods[name] = map[string]bool{}
			}
			methods[name][g.Name.Name] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !methods[spec.Name.Name]["Write"] || methods[spec.Name.Name]["ReadFrom"] {
			return true
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range fields.Fields.List {
			if name := qualifiedName(field.Type); len(field.Names) == 0 && readsFrom[name] {
				violations = append(violations, fmt.Sprintf("%s:%d: io.Copy calls ReadFrom of the embedded %s instead of Write",
					path, set.Position(field.Pos()).Line, name))
			}
		}
		return true
	})
	return violations
}

// qualifiedName returns a type's name with its package, such as bytes.Buffer, also for a pointer to the type.
func qualifiedName(e ast.Expr) string {
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	return nameOf(s.X) + "." + s.Sel.Name
}
