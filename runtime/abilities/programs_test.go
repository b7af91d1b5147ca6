package abilities

import (
	"os"
	"path/filepath"
	"testing"
)

// TestShippedFor checks that the shipped OCI runtime is found at its path relative to the program, if the file is executable.
func TestShippedFor(t *testing.T) {
	root := t.TempDir()
	program, oci := filepath.Join(root, "bin", "islet"), filepath.Join(root, "lib", "islet", "crun")
	if got := shippedFor(program); got != "" {
		t.Errorf("nothing is installed, got %q", got)
	}
	if err := os.MkdirAll(filepath.Dir(oci), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(oci, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := shippedFor(program); got != "" {
		t.Errorf("a file that is not executable: %q", got)
	}
	if err := os.Chmod(oci, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := shippedFor(program); got != oci {
		t.Errorf("got %q, want %q", got, oci)
	}
	if err := os.Remove(oci); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(oci, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := shippedFor(program); got != "" {
		t.Errorf("a directory: %q", got)
	}
}
