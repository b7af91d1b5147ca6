// Package disk measures the size of directories and reads the counters of block devices.
//
//	Trees.Usage: walks a directory, again after Age -> bytes, inodes
//	Devices: /proc/diskstats     Name: 8:0 -> /dev/sda
package disk
