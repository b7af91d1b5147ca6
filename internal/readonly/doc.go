// Package readonly recognizes disks that do not accept writes. It also recognizes the errors of
// failing disks, and errors of a process that lacks file descriptors or memory.
package readonly
