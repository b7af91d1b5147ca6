// Package sorting sorts lists of structs with little code. The compiler creates an instance of slices.SortFunc for
// each struct type, which adds 10 to 23 KB to the program. This package uses package sort, whose algorithm the program
// contains once, so a struct type adds some 500 bytes. Use slices.SortFunc for pointers and strings, because all
// pointer types share one instance.
//
//	list, cmp --By, StableBy--> sort.Sort, sort.Stable
package sorting
