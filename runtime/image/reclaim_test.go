package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestReclaim checks that data without an image is removed. This includes files without a record in containerd. Images and running pulls
// are not affected.
func TestReclaim(t *testing.T) {
	s := newService(t, nil)
	if _, err := importers["file"](t, s, dockerArchive(t, map[string]v1.Image{"demo:1": small(t)})); err != nil {
		t.Fatal(err)
	}
	ctx := withNamespace(t.Context())
	want := left(t, s)
	glob := func(pattern string) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(s.c.Root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing matches %s: %v", pattern, err)
		}
		return found[0]
	}
	// A power failure may leave these files.
	lost := []string{filepath.Join(glob("*overlayfs*/snapshots"), "4711"), filepath.Join(glob("*content*/blobs/sha256"), strings.Repeat("ab", 32))}
	if err := os.MkdirAll(filepath.Join(lost[0], "fs", "big"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lost[1], make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	leased, done, err := s.pullLease(ctx, "r.example/going:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.snapshotter().Prepare(leased, "going", ""); err != nil {
		t.Fatal(err)
	}
	_, stop, err := s.pullLease(ctx, "r.example/stopped:1")
	if err != nil {
		t.Fatal(err)
	}
	stop(false)
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := left(t, s)
	if !slices.ContainsFunc(got, func(l string) bool { return l == "snapshot going" }) {
		t.Errorf("the data of a running pull was removed: %q", got)
	}
	if slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "stopped") }) {
		t.Errorf("the lease of a stopped pull remains: %q", got)
	}
	for _, path := range lost {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	done(true)
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := left(t, s); !slices.Equal(got, want) {
		t.Errorf("%q\nnot\n%q", got, want)
	}
	wantFiles(t, s, "demo:1", map[string]string{"hello": "hello\n"})
}
