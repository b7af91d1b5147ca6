// Package disk measures the size of directories and reads the counters of block devices.
//
//	Trees.Usage: a walk through a directory, repeated after Age -> bytes, inodes
//	Devices: /proc/diskstats     DeviceFile: 8:0 -> /dev/sda
package disk
