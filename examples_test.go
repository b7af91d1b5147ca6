package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/finding"
)

// TestExamples checks that each manifest in docs/examples passes islet check, alone and together with the others, that its comment says
// what it does, what the node needs and what to change, and that the page lists it. test/node applies the manifests.
func TestExamples(t *testing.T) {
	const dir = "docs/examples"
	names, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d examples: %v", len(names), err)
	}
	page, err := os.ReadFile(dir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	configuration := readExample(t, dir+"/node/edge.yaml")
	all := []finding.File{configuration}
	for _, name := range names {
		f := readExample(t, name)
		all = append(all, f)
		expectClean(t, []finding.File{f, configuration})
		comment, _, _ := strings.Cut(string(f.Data), "apiVersion:")
		if lines := strings.Split(comment, "\n"); len(lines) < 4 || !strings.Contains(comment, "\n# Needs on the node: ") ||
			!strings.Contains(comment, "\n# To change: ") {
			t.Errorf("%s: the comment is\n%s", name, comment)
		}
		base := filepath.Base(name)
		if row := fmt.Sprintf("\n| [%s](%s) | ", strings.TrimSuffix(base, ".yaml"), base); !strings.Contains(string(page), row) {
			t.Errorf("README.md has no row of %s", base)
		}
	}
	expectClean(t, all)
	if rows := strings.Count(string(page), "\n| ["); rows != len(names) {
		t.Errorf("README.md has %d rows, and there are %d examples", rows, len(names))
	}
}

func readExample(t *testing.T, name string) finding.File {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return finding.File{Name: name, Data: b}
}

// expectClean checks that islet check has no finding about the files.
func expectClean(t *testing.T, files []finding.File) {
	t.Helper()
	for _, f := range checkFiles(files, nil).Findings {
		t.Errorf("%s:%d: %s: %s %s", f.File, f.Line, f.Severity, f.Field, f.Message)
	}
}
