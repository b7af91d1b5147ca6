package sorting

import "sort"

// By sorts a list in the order that the function cmp defines. Like slices.SortFunc, By is not stable.
func By[E any](list []E, cmp func(a, b E) int) { sort.Sort(orderedList[E]{list, cmp}) }

// StableBy is like By, but keeps the order of equal elements.
func StableBy[E any](list []E, cmp func(a, b E) int) { sort.Stable(orderedList[E]{list, cmp}) }

// orderedList implements sort.Interface.
type orderedList[E any] struct {
	list []E
	cmp  func(a, b E) int
}

func (o orderedList[E]) Len() int           { return len(o.list) }
func (o orderedList[E]) Less(i, j int) bool { return o.cmp(o.list[i], o.list[j]) < 0 }
func (o orderedList[E]) Swap(i, j int)      { o.list[i], o.list[j] = o.list[j], o.list[i] }
