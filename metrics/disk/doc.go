// Package disk measures what lies below directories, and what devices have done.
//
//	Trees.Usage: a walk of a directory, again after Age -> bytes, inodes
//	Devices: /proc/diskstats     Name: 8:0 -> /dev/sda
package disk
