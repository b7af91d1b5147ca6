package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// nameless contains the files that log only the UID of a pod, because its name is unknown.
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
	eachFile(t, func(path string, set *token.FileSet, file *ast.File) {
		if isTest(path) {
			return
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
	})
	if calls < 100 {
		t.Errorf("only %d calls of a logger were found", calls)
	}
}

// TestNoWordsOfLogs checks that no test searches a log for words of a message, because the words may change. Keys, such as " signal=", and
// levels do not change.
func TestNoWordsOfLogs(t *testing.T) {
	var messages []string
	searched := map[string][]string{} // by position
	eachFile(t, func(path string, set *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if isTest(path) {
				if words := searchedInLog(n); len(words) > 0 {
					searched[set.Position(n.Pos()).String()] = words
				}
			} else if call, ok := n.(*ast.CallExpr); ok && logs(call) {
				messages = append(messages, literals(call.Args[:1])...)
			}
			return true
		})
	})
	for at, list := range searched {
		for _, words := range list {
			if slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, words) }) {
				t.Errorf("%s: a log is searched for %q", at, words)
			}
		}
	}
	for text, want := range map[string]string{
		`strings.Count(m.AgentLog(1<<20), "an agent")`:           "an agent",
		`strings.Contains(log, "pod is evicted")`:                "pod is evicted",
		`strings.Index(log, "msg=\"image removed\"")`:            "image removed",
		`strings.Index(log, " signal=")`:                         "",
		`strings.Contains(status, "pod is evicted")`:             "",
		"v.Run(`journal" + "ctl | grep 'pod is evicted'`)":       "pod is evicted",
		`v.Run("islet events | grep -q 'pod is evicted' | cat")`: "",
	} {
		e, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		ast.Inspect(e, func(n ast.Node) bool {
			found = append(found, searchedInLog(n)...)
			return true
		})
		if got := strings.Join(found, ", "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

var (
	logName  = regexp.MustCompile(`(?i)log(s|ged|lines)?$|^lines$`)
	inQuotes = regexp.MustCompile(`'([^'*]*)`)
)

// searchedInLog returns the words for which a test searches a log: in a call such as strings.Contains(log, "..."), or with grep in the
// journal. Text without a space, and text with the separator of a key, are not words.
func searchedInLog(n ast.Node) (words []string) {
	switch n := n.(type) {
	case *ast.CallExpr:
		search, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) != 2 || !slices.Contains([]string{"Contains", "Count", "Index", "HasPrefix", "Cut"}, search.Sel.Name) {
			return nil
		}
		ast.Inspect(n.Args[0], func(in ast.Node) bool {
			if name, ok := in.(*ast.Ident); ok && logName.MatchString(name.Name) {
				words = literals(n.Args[1:])
			}
			return true
		})
	case *ast.BasicLit:
		if strings.Contains(n.Value, "journalctl") {
			for _, m := range inQuotes.FindAllStringSubmatch(n.Value, -1) {
				words = append(words, strings.TrimSuffix(m[1], "."))
			}
		}
	}
	for i, w := range words {
		words[i] = strings.Trim(strings.TrimPrefix(w, "msg="), `"`)
	}
	return slices.DeleteFunc(words, func(s string) bool { return !strings.Contains(strings.TrimSpace(s), " ") || strings.Contains(s, "=") })
}

// isTest reports whether a file is part of the tests.
func isTest(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.ToSlash(path), "test/")
}

// eachFile parses every Go file of the repository.
func eachFile(t *testing.T, use func(path string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (slices.Contains([]string{".cache", ".git", "dist", "bin"}, path) || strings.HasSuffix(path, "crisuite")):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		use(path, set, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// logs reports whether a call is a call of a logger's method, such as log.Warn or s.Log.Error.
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

// literals returns the string literals among arguments. For a logger, these are the keys and some values.
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
