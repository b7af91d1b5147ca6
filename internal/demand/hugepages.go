package demand

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/sorting"
)

// HugePages is an amount of huge pages of one size.
type HugePages struct {
	Size  string // as the kernel writes it, such as 2MB
	Bytes uint64
}

// HugePagesOf returns the huge pages in a list of resources, sorted by size.
// https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/
func HugePagesOf(l v1.ResourceList) (out []HugePages) {
	for name, q := range l {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			out = append(out, HugePages{strings.TrimSuffix(size, "i") + "B", uint64(max(q.Value(), 0))})
		}
	}
	sorting.By(out, func(a, b HugePages) int { return cmp.Compare(a.Size, b.Size) })
	return out
}
