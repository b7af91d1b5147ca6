// Package regular reads files whose names come from a configuration, a person or another program.
// It rejects everything but regular files, because opening a FIFO can block and a device may never
// end, and it reads no more than a given size.
//
// Symlinks are followed, because only root can write to these paths. For files that pods or images
// can create, use package internal/untrusted.
package regular
