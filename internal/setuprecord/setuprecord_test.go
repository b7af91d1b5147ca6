package setuprecord

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestProblems checks that only a record with a refusal has a problem.
func TestProblems(t *testing.T) {
	for text, want := range map[string][]string{
		`{"refused":{"file":"/boot/islet.yaml","why":"name: wrong"}}`: {"/boot/islet.yaml is not in use: name: wrong"},
		`{"file":"/boot/islet.yaml"}`:                                 nil, "{": nil, "": nil,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Problems(dir); !slices.Equal(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := Problems(t.TempDir()); got != nil {
		t.Errorf("%q", got)
	}
}
