// Package kernfile reads files that the kernel makes while they are read, as those of proc and of
// cgroups: hundreds of small ones for one scrape, into memory that is used again, and without
// what Go's own files need besides a descriptor.
//
//	Get -> Open, Read (or File) -> the text, until the next -> Put
package kernfile
