package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestAllProcesses checks that the processes of descendants are listed, and that their number is limited.
func TestAllProcesses(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{"pod/c": "11\n12\n", "pod/c/child": "13\n", "pod/c/child/deep": "14\n", "pod/other": "99\n"} {
		dir := filepath.Join(root, "memory", path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(root)
	if got, err := r.AllProcesses("/pod/c", 100); err != nil || !slices.Equal(got, []int{11, 12, 13, 14}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.AllProcesses("/pod/c", 3); err != nil || !slices.Equal(got, []int{11, 12, 13}) {
		t.Errorf("limited: %v, %v", got, err)
	}
	if got, err := r.AllProcesses("/none", 3); err != nil || len(got) > 0 {
		t.Errorf("missing: %v, %v", got, err)
	}
}
