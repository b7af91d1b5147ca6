// Lint reports violations of the house rules that no built-in rule of revive finds:
//
//   - an init statement of an if that is unrelated to its condition: `if x = y; z {`
//     hides an assignment. The condition must use a variable that the statement assigns, or,
//     if the statement is a call, a variable of the call;
//
//   - a sleep of a test outside of a bubble of package synctest, which has a fake clock, unless
//     the line has a comment with the reason;
//
//   - a line of a test over 140 columns that is neither part of a composite literal nor a long
//     string, such as a manifest or a command.
//
//   - a type that has a method Write and embeds a bytes.Buffer or another type with a method
//     ReadFrom, which io.Copy calls instead of Write: a limit in Write would have no effect.
//
//     lint FOLDER...
//
// It prints file:line: message for each violation. The exit code is 1 if there is one.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	columns  = 140 // maximum number of columns of a line
	longText = 50  // a line with a string of more characters than this may be longer
)

func main() {
	found := 0
	for _, root := range os.Args[1:] {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
				return filepath.SkipDir
			case d.IsDir():
				violations, err := checkSleeps(path)
				for _, v := range violations {
					fmt.Println(v)
				}
				found += len(violations)
				return err
			case !strings.HasSuffix(path, ".go"):
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			violations, err := check(path, text)
			for _, v := range violations {
				fmt.Println(v)
			}
			found += len(violations)
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "lint:", err)
			os.Exit(2)
		}
	}
	if found > 0 {
		os.Exit(1)
	}
}

// check returns the violations of one file, as file:line: message.
func check(path string, text []byte) (violations []string, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, text, 0)
	if err != nil {
		return nil, err
	}
	violations = checkEmbedded(path, files, f)
	exempt := map[int]bool{} // lines of composite literals and of long strings
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if n.Init != nil && !uses(n.Cond, assigned(n.Init)) {
				violations = append(violations,
					fmt.Sprintf("%s:%d: the condition does not use the init statement", path, files.Position(n.Pos()).Line))
			}
		case *ast.CompositeLit:
			for line := files.Position(n.Pos()).Line; line <= files.Position(n.End()).Line; line++ {
				exempt[line] = true
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && len(n.Value) > longText {
				for line := files.Position(n.Pos()).Line; line <= files.Position(n.End()).Line; line++ {
					exempt[line] = true
				}
			}
		}
		return true
	})
	if !strings.HasSuffix(path, "_test.go") {
		return violations, nil // revive checks the length of other lines
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		if !exempt[n] && utf8.RuneCount(lines.Bytes()) > columns {
			violations = append(violations, fmt.Sprintf("%s:%d: line is over %d columns", path, n, columns))
		}
	}
	return violations, lines.Err()
}

// assigned returns the names of the variables, fields and elements that a statement assigns. If the statement is not an assignment but, for
// example, a call, the function returns every name in the statement.
func assigned(s ast.Stmt) (names []string) {
	a, ok := s.(*ast.AssignStmt)
	if !ok {
		ast.Inspect(s, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names = append(names, id.Name)
			}
			return true
		})
		return names
	}
	for _, left := range a.Lhs {
		if name := nameOf(left); name != "" && name != "_" {
			names = append(names, name)
		}
	}
	return names
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.StarExpr:
		return nameOf(e.X)
	}
	return ""
}

func uses(e ast.Expr, names []string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			for _, name := range names {
				found = found || id.Name == name
			}
		}
		return !found
	})
	return found
}
