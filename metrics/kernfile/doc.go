// Package kernfile reads files whose content the kernel generates on each read, such as the files of proc
// and cgroupfs. A scrape reads hundreds of small files. So the package reuses memory and avoids the
// allocations of os.File.
//
//	Get -> Open, Read (or File) -> the text, valid until the next read -> Put
package kernfile
