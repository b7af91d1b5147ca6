package setuprecord_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/islet-edge/islet/internal/setuprecord"
)

// TestProblems checks that only a record with a refusal has a problem.
func TestProblems(t *testing.T) {
	for text, want := range map[string][]string{
		`{"refused":{"file":"/boot/islet.yaml","why":"name: wrong"}}`: {"/boot/islet.yaml is not in use: name: wrong"},
		`{"file":"/boot/islet.yaml"}`:                                 nil, "{": nil, "": nil,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, setuprecord.File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := setuprecord.Problems(dir); !slices.Equal(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := setuprecord.Problems(t.TempDir()); got != nil {
		t.Errorf("%q", got)
	}
}
