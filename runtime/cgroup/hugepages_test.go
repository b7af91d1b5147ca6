package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestHugePages checks the limit of huge pages. It is the request of the pod, or the sum of the requests of the containers. Without
// requests it is zero. If the kernel does not account a page size, no limit is set for it.
func TestHugePages(t *testing.T) {
	r := v1.ResourceRequirements{Requests: list("memory", "1Mi", "hugepages-2Mi", "4Mi"), Limits: list("memory", "1Mi", "hugepages-2Mi", "4Mi")}
	both := pod("a", r, r)
	whole := pod("a", v1.ResourceRequirements{}, v1.ResourceRequirements{})
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: list("memory", "1Mi", "hugepages-2Mi", "6Mi", "hugepages-1Gi", "1Gi"), Limits: list("memory", "1Mi", "hugepages-2Mi", "6Mi", "hugepages-1Gi", "1Gi")}
	none := pod("a", v1.ResourceRequirements{})
	for file, reserved := range map[string]string{
		"hugetlb.2MB.max":            "hugetlb.2MB.rsvd.max",
		"hugetlb.2MB.limit_in_bytes": "hugetlb.2MB.rsvd.limit_in_bytes",
		"memory.max":                 "hugetlb.2MB.events",
	} {
		dir := t.TempDir()
		for _, name := range []string{file, reserved, "hugetlb.2MB.current", "hugetlb.2MB.max_usage_in_bytes", "pids.max"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for p, want := range map[*v1.Pod]uint64{both: 8 << 20, whole: 6 << 20, none: 0} {
			got := hugePages(p, dir)
			if file == "memory.max" {
				if len(got) > 0 {
					t.Errorf("%q: limits %+v", file, got[0])
				}
			} else if len(got) != 1 || got[0].Pagesize != "2MB" || got[0].Limit != want {
				t.Errorf("%q: limits %+v, want %d", file, got, want)
			}
		}
	}
	if got := hugePages(both, ""); got != nil {
		t.Errorf("without a cgroup for huge pages: %+v", got[0])
	}
}
