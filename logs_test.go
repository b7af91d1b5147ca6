package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This variable contains the files that log only the UID of a pod, because its name is unknown.
var nameless = []string{
	"agent/pod/life/observe/observe.go", // the runtime did not answer, so the name is unknown
	"agent/pod/life/worker/set.go",      // the worker that panicked may not have the pod
	"agent/pod/life/worker/worker.go",   // the name is unknown until the pod is read
	"edge/store/allocations.go",
	"edge/store/pods.go", // an object that cannot be decoded has no name
	"edge/store/statuses.go",
}

// TestLogKeys checks that log lines have errors under the key "error", and pods under the keys "pod" (namespace/name) and "uid".
func TestLogKeys(t *testing.T) {
	calls := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (slices.Contains([]string{"test", ".cache", ".git", "dist", "bin"}, path) || strings.HasSuffix(path, "crisuite")):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !logs(call) {
				return true
			}
			calls++
			keys := literals(call.Args[1:])
			for _, wrong := range []string{"err", "podName", "podUID", "pod_uid"} {
				if slices.Contains(keys, wrong) {
					t.Errorf("%s: the key is %q: it must be error, pod or uid", set.Position(call.Pos()), wrong)
				}
			}
			if slices.Contains(keys, "uid") && !slices.Contains(keys, "pod") && !slices.Contains(nameless, filepath.ToSlash(path)) {
				t.Errorf("%s: a uid without a pod", set.Position(call.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls < 100 {
		t.Errorf("only %d calls of a logger were found", calls)
	}
}

// This function reports whether a call is a call of a logger's method, such as log.Warn or s.Log.Error.
func logs(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || !slices.Contains([]string{"Debug", "Info", "Warn", "Error", "With"}, method.Sel.Name) {
		return false
	}
	switch on := method.X.(type) {
	case *ast.SelectorExpr:
		return strings.EqualFold(on.Sel.Name, "log")
	case *ast.Ident:
		return strings.EqualFold(on.Name, "log") || on.Name == "slog"
	}
	return false
}

// This function returns the string literals among arguments. For a logger, these are the keys and some values.
func literals(args []ast.Expr) (all []string) {
	for _, a := range args {
		if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, s)
			}
		}
	}
	return all
}
