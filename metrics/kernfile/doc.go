// Package kernfile reads files whose content the kernel generates on reading, such as those of proc
// and cgroupfs. One scrape reads hundreds of small ones, so it reuses memory and avoids the
// allocations of os.File.
//
//	Get -> Open, Read (or File) -> the text, valid until the next read -> Put
package kernfile
