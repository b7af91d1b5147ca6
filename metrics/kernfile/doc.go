// Package kernfile reads files whose content the kernel generates on each read, such as the files of proc and cgroupfs. A scrape reads
// hundreds of such files, so the package reuses memory and does not use os.File, which allocates memory.
//
//	Get -> Open, Read (or File) -> the text, valid until the next read -> Put
package kernfile
