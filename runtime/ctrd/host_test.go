package ctrd

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCountsHugePages checks that hasHugetlb finds the controller of cgroup v2 and the hierarchy of cgroup v1.
func TestCountsHugePages(t *testing.T) {
	for _, tt := range []struct {
		name        string
		controllers string // content of cgroup.controllers on v2; if empty, the file does not exist
		hierarchy   bool   // whether the hierarchy of cgroup v1 exists
		v2, want    bool
	}{
		{name: "v2", controllers: "cpuset cpu memory hugetlb pids\n", v2: true, want: true},
		{name: "v2 without", controllers: "cpuset cpu memory pids\n", v2: true},
		{name: "v2 with another name", controllers: "nohugetlb\n", v2: true},
		{name: "v2 with a directory", controllers: "memory", hierarchy: true, v2: true},
		{name: "v1", hierarchy: true, want: true},
		{name: "v1 without"},
		{name: "v1 beside v2", controllers: "hugetlb\n"},
	} {
		root := t.TempDir()
		if tt.controllers != "" {
			if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte(tt.controllers), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if tt.hierarchy {
			if err := os.Mkdir(filepath.Join(root, "hugetlb"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if got := hasHugetlb(root, tt.v2); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
