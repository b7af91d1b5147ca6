package podvolumes

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/demand"
)

// isHugePages reports whether a medium is memory in huge pages, such as HugePages or HugePages-2Mi.
func isHugePages(m v1.StorageMedium) bool {
	return m == v1.StorageMediumHugePages || strings.HasPrefix(string(m), string(v1.StorageMediumHugePagesPrefix))
}

// hugeOptions returns the mount options of a volume in huge pages. The page size comes from the medium, such as
// HugePages-2Mi. If the medium specifies no page size, the pod must request exactly one page size, and this size is
// used. The volume's size is the pod's limit or the volume's sizeLimit, whichever is lower. The error messages are
// the same as in a kubelet.
// https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/
func hugeOptions(pod *v1.Pod, vol *v1.Volume) (string, error) {
	medium := vol.EmptyDir.Medium
	var named resource.Quantity
	if medium != v1.StorageMediumHugePages {
		var err error
		if named, err = resource.ParseQuantity(strings.TrimPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))); err != nil {
			return "", fmt.Errorf("medium %s: %w", medium, err)
		}
	}
	page, size := int64(0), int64(0)
	limits := demand.Limits(pod)
	for name, q := range limits {
		suffix, is := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !is {
			continue
		}
		p, err := resource.ParseQuantity(suffix)
		switch {
		case err != nil:
			return "", fmt.Errorf("resource %s: %w", name, err)
		case medium != v1.StorageMediumHugePages && p.Cmp(named) != 0:
			continue
		case page != 0:
			return "", fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
		}
		page, size = p.Value(), q.Value()
	}
	if page <= 0 {
		return "", fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	}
	if l := vol.EmptyDir.SizeLimit; l != nil && l.Sign() > 0 {
		size = min(size, l.Value())
	}
	return fmt.Sprintf(",pagesize=%d,size=%d", page, size), nil
}

// mountHuge mounts a hugetlbfs.
func mountHuge(dir, options string) error {
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, options); err != nil {
		return fmt.Errorf("mount hugetlbfs with %s: %w", options, err)
	}
	return nil
}
