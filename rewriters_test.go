package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRewriters checks that the owner of each table that package edge/store does not restore by itself registers a function for this table,
// and tests what this function stores. The pods are the exception: package agent/pod/life/rebuild stores them before all other rows.
func TestRewriters(t *testing.T) {
	text, err := os.ReadFile("edge/store/salvage.go")
	if err != nil {
		t.Fatal(err)
	}
	grep := func(args ...string) string { // returns no lines if nothing matches
		out, _ := exec.CommandContext(t.Context(), "git", append([]string{"grep", "--untracked", "-F"}, args...)...).Output()
		return string(out)
	}
	tables := 0
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(strings.Trim(line, "\t{"), ",")
		if !strings.Contains(line, ", fromOwner, ") {
			continue
		}
		tables++
		if name == `"pods"` {
			continue
		}
		files := strings.Fields(grep("-l", ".AddRewriter("+name+", ", "--", "*.go", ":!*_test.go"))
		if len(files) != 1 {
			t.Errorf("the owners that call AddRewriter for the table %s are %q", name, files)
		} else if grep("-l", ".RewriteRows(", "--", ":(glob)"+filepath.Dir(files[0])+"/*_test.go") == "" {
			t.Errorf("%s: no test of this package calls RewriteRows", files[0])
		}
	}
	if tables < 4 {
		t.Errorf("only %d tables are found in edge/store/salvage.go", tables)
	}
}
