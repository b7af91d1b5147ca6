package ctrd

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWithoutLinks compares withoutLinks with EvalSymlinks. Some of the paths contain symlinks, and some do not exist. Both functions must
// return the same path, or both an error.
func TestWithoutLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"l": "a", "a/up": "..", "dangling": "none"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"a/b", "a//b/", "a/b/../b", "l/b", "l", "a/up/a", "dangling", "none/b", "."} {
		want, wantErr := filepath.EvalSymlinks(dir + "/" + path)
		got, err := withoutLinks(dir + "/" + path)
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("%s is %s, %v, not %s, %v", path, got, err, want, wantErr)
		}
	}
}

func BenchmarkWithoutLinks(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "var/lib/kubelet/pods/0b7c1f6e/volumes/kubernetes.io~projected/v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func(string) (string, error){"kernel": withoutLinks, "EvalSymlinks": filepath.EvalSymlinks} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
