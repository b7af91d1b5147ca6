package ctrd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCountsHugePages checks that hasHugetlb finds the controller of cgroup v2 and the hierarchy of cgroup v1.
func TestCountsHugePages(t *testing.T) {
	for _, tt := range []struct {
		name        string
		controllers string // content of cgroup.controllers on v2; if empty, the file does not exist
		hierarchy   string // file in the directory of the hierarchy of cgroup v1; if empty, the directory does not exist
		v2, want    bool
	}{
		{name: "v2", controllers: "cpuset cpu memory hugetlb pids\n", v2: true, want: true},
		{name: "v2 without", controllers: "cpuset cpu memory pids\n", v2: true},
		{name: "v2 with another name", controllers: "nohugetlb\n", v2: true},
		{name: "v2 with a directory", controllers: "memory", hierarchy: "cgroup.procs", v2: true},
		{name: "v1", hierarchy: "cgroup.procs", want: true},
		{name: "v1 without"},
		{name: "v1 not mounted", hierarchy: "other"},
		{name: "v1 beside v2", controllers: "hugetlb\n"},
	} {
		root := t.TempDir()
		if tt.controllers != "" {
			if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte(tt.controllers), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if tt.hierarchy != "" {
			dir := filepath.Join(root, "hugetlb")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, tt.hierarchy), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := hasHugetlb(root, tt.v2); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
