package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRewriters checks that the owner of each table that package edge/store does not restore by itself registers a function for this table.
// The pods are the exception: package agent/pod/life/rebuild stores them before all other rows.
func TestRewriters(t *testing.T) {
	text, err := os.ReadFile("edge/store/salvage.go")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "grep", "-hF", ".AddRewriter(", "--", "*.go", ":!*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(strings.Trim(line, "\t{"), ",")
		if !strings.Contains(line, ", fromOwner, ") {
			continue
		}
		tables++
		if name != `"pods"` && strings.Count(string(out), ".AddRewriter("+name+", ") != 1 {
			t.Errorf("no owner calls AddRewriter for the table %s", name)
		}
	}
	if tables < 4 {
		t.Errorf("only %d tables are found in edge/store/salvage.go", tables)
	}
}
