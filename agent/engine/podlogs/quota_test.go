package podlogs

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestQuota checks that the oldest rotated logs of a pod's containers are deleted until the pod is within its quota. Symbolic links and
// other files are kept.
func TestQuota(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	put := func(path string, pages int) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, pages*4096), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("ns_big_u1/a/0.log", 3)
	put("ns_big_u1/a/1.log", 3)
	put("ns_big_u1/a/1.log.20260101-000005", 2)
	put("ns_big_u1/a/1.log.20260101-000001.gz", 2)
	put("ns_big_u1/a/notes.txt", 1)
	put("ns_big_u1/b/0.log", 1)
	put("ns_big_u1/b/0.log.20260101-000003.gz", 2)
	put("ns_small_u2/a/0.log.20260101-000000", 9)
	put("ns_full_u3/a/0.log", 20)
	put("ns_full_u3/a/0.log.20260101-000000", 1)
	if err := os.WriteFile(filepath.Join(outside, "0.log.20260101-000000"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"ns_big_u1/linked", "ns_linked_u4"} {
		if err := os.Symlink(outside, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "0.log.20260101-000000"),
		filepath.Join(root, "ns_big_u1/a/0.log.20250101-000000")); err != nil {
		t.Fatal(err)
	}
	q := &Quota{Dir: root, Bytes: 10 * 4096, Workers: 2, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	q.scan(t.Context())
	q.scan(t.Context())
	var got []string
	found, err := filepath.Glob(filepath.Join(root, "*/*/*.log*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		rel, _ := filepath.Rel(root, f)
		got = append(got, rel)
	}
	slices.Sort(got)
	want := []string{"ns_big_u1/a/0.log", "ns_big_u1/a/0.log.20250101-000000", "ns_big_u1/a/1.log", "ns_big_u1/a/1.log.20260101-000005", "ns_big_u1/b/0.log",
		"ns_big_u1/linked/0.log.20260101-000000", "ns_full_u3/a/0.log", "ns_small_u2/a/0.log.20260101-000000"}
	if !slices.Equal(got, want) {
		t.Errorf("left %q\nnot  %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(outside, "0.log.20260101-000000")); err != nil {
		t.Error(err)
	}
}
