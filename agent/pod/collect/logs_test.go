package collect

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestLogs(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	l := Logs{Dir: dir}
	for _, d := range []string{"default_a_u1/c", "default_b_u2/c", "default_c_u3/c", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside+"/kept", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir+"/default_a_u1/c/0.log"); err != nil {
		t.Fatal(err)
	}
	left := func(want ...string) {
		t.Helper()
		var got []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("left: %v, not %v", got, want)
		}
	}
	for range 2 {
		if err := l.Release(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		left("default_b_u2", "default_c_u3", "other")
	}
	if err := l.Sweep(t.Context(), func(uid types.UID) bool { return uid == "u3" }); err != nil {
		t.Fatal(err)
	}
	left("default_c_u3", "other")
	if _, err := os.Stat(outside + "/kept"); err != nil {
		t.Error(err)
	}
	if err := (Logs{Dir: dir + "/none"}).Release(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
}
