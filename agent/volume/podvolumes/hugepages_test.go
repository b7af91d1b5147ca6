package podvolumes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestHugePages(t *testing.T) {
	limit := func(pairs ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	group := int64(7)
	for _, tt := range []struct {
		medium v1.StorageMedium
		limits v1.ResourceList
		size   string
		group  *int64
		want   string
	}{
		{"HugePages", limit("hugepages-2Mi", "8Mi", "memory", "1Gi"), "", nil, "mode=1777,pagesize=2097152,size=8388608"},
		{"HugePages", limit("hugepages-2Mi", "8Mi"), "4Mi", &group, "mode=3777,gid=7,pagesize=2097152,size=4194304"},
		{"HugePages", limit("hugepages-2Mi", "8Mi"), "1Gi", nil, "mode=1777,pagesize=2097152,size=8388608"},
		{"HugePages-1Gi", limit("hugepages-2Mi", "8Mi", "hugepages-1Gi", "2Gi"), "", nil, "mode=1777,pagesize=1073741824,size=2147483648"},
		{"HugePages", limit("hugepages-2Mi", "8Mi", "hugepages-1Gi", "2Gi"), "", nil, "error: medium: HugePages can't be used if container requests multiple huge page sizes"},
		{"HugePages", limit("memory", "8Mi"), "", nil, "error: medium HugePages: hugePages storage requested, but there is no resource request for huge pages"},
		{"HugePages-1Gi", limit("hugepages-2Mi", "8Mi"), "", nil, "error: medium HugePages-1Gi: hugePages storage requested"},
		{"HugePages-many", limit("hugepages-2Mi", "8Mi"), "", nil, "error: medium HugePages-many: quantities must match"},
	} {
		vol := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: tt.medium}}}
		if tt.size != "" {
			vol.EmptyDir.SizeLimit = ptr(resource.MustParse(tt.size))
		}
		p := podWith(vol)
		p.Spec.Containers[0].Resources.Limits = tt.limits
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: tt.group}
		got, err := hugeOptions(p, &vol)
		got = (emptyDir{}).dirOptions(p, &vol) + got
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != tt.want && !(strings.HasPrefix(tt.want, "error") && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s of %v: %s, not %s", tt.medium, tt.limits, got, tt.want)
		}
	}
}

// TestHugePagesMounted checks that the volume is a hugetlbfs with the pod's page size. A page size that the host does not have is rejected.
func TestHugePagesMounted(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("this kernel has no pages of 2 MiB:", err)
	}
	v, _ := withAPI(t)
	p := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}})
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"hugepages-2Mi": resource.MustParse("8Mi")}
	for range 2 {
		if err := v.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(v.cfg.Root, "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/v")
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.HUGETLBFS_MAGIC || st.Bsize != 2<<20 || st.Blocks != 4 {
		t.Errorf("%+v: %v", st, err)
	}
	if err := v.Release(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	requireGone(t, dir)
	none := filepath.Join(t.TempDir(), "none")
	if err := errors.Join(os.Mkdir(none, 0o755), mountHuge(none, "pagesize=12345,size=12345")); err == nil ||
		!strings.Contains(err.Error(), "pagesize=12345") {
		t.Error(err)
	}
}
