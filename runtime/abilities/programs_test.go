package abilities

import (
	"os"
	"path/filepath"
	"testing"
)

// The shipped OCI runtime is found relative to the program's path, and only if it is an executable
// file.
func TestBesides(t *testing.T) {
	root := t.TempDir()
	program, oci := filepath.Join(root, "bin", "islet"), filepath.Join(root, "lib", "islet", "crun")
	if got := besides(program); got != "" {
		t.Errorf("nothing is installed, got %q", got)
	}
	if err := os.MkdirAll(filepath.Dir(oci), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(oci, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := besides(program); got != "" {
		t.Errorf("a file that cannot be run was taken: %q", got)
	}
	if err := os.Chmod(oci, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := besides(program); got != oci {
		t.Errorf("got %q, want %q", got, oci)
	}
	if err := os.Remove(oci); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(oci, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := besides(program); got != "" {
		t.Errorf("a directory was taken: %q", got)
	}
}
