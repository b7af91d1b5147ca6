package demand

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// HugePages is how much there is to be of pages of one size.
type HugePages struct {
	Size  string // in the kernel's words, such as 2MB
	Bytes uint64
}

// HugePagesOf are those of a list, by size.
// https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/
func HugePagesOf(l v1.ResourceList) (out []HugePages) {
	for name, q := range l {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			out = append(out, HugePages{strings.TrimSuffix(size, "i") + "B", uint64(max(q.Value(), 0))})
		}
	}
	slices.SortFunc(out, func(a, b HugePages) int { return cmp.Compare(a.Size, b.Size) })
	return out
}
