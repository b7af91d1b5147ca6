// Package sorting sorts lists of structs with little code. The compiler creates an instance of slices.SortFunc for
// each struct type. Each instance adds 10 to 23 KB to the program. This package uses package sort. The program
// contains the algorithm of package sort only once, so each struct type adds only some 500 bytes. For pointers and
// strings, use slices.SortFunc: all pointer types share one instance.
//
//	list, cmp --By, StableBy--> sort.Sort, sort.Stable
package sorting
