// Package sorting sorts lists of structs. The compiler creates one instance of slices.SortFunc for each type of
// structs, which adds 10 to 23 KB to the program. This package calls package sort, whose algorithm exists once, so
// each type adds some 500 bytes. Use slices.SortFunc for pointers and strings, because these share one instance of it.
//
//	list, cmp --By, StableBy--> sort.Sort, sort.Stable
package sorting
