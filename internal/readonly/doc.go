// Package readonly knows disks that take no writes.
package readonly
