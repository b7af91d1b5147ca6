package ctrd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCopyMount checks that the root directory of a copied image has the mode that it has in the image. The copying stops when its context
// ends.
func TestCopyMount(t *testing.T) {
	image := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(image, "file"), []byte("image"), 0o640),
		os.Chmod(image, 0o750|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	m, err := copyMount(t.Context(), t.TempDir(), []string{image})
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(m.Source)
	if b, missing := os.ReadFile(filepath.Join(m.Source, "file")); err != nil || missing != nil || string(b) != "image" ||
		st.Mode() != os.ModeDir|os.ModeSticky|0o750 {
		t.Errorf("%v, %q: %v, %v", st.Mode(), b, err, missing)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := copyMount(ended, t.TempDir(), []string{image}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}
