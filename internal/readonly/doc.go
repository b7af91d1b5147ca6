// Package readonly recognizes disks that do not accept writes and errors of failing disks.
package readonly
