// Package sorting sorts lists of structs. slices.SortFunc compiles its algorithm anew for each type
// of structs, 10 to 23 KB of program each time. This package calls package sort, whose algorithm
// exists once, so a type costs some 500 bytes. Use slices.SortFunc for pointers and strings,
// because these share one instance of it.
//
//	list, cmp --By, StableBy--> sort.Sort, sort.Stable
package sorting
