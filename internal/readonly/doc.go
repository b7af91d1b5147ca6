// Package readonly recognizes disks that do not accept writes. It also recognizes the errors of
// failing disks.
package readonly
