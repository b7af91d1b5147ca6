// Package regular reads files whose names come from a configuration, a person or another program.
// It accepts only regular files, because opening a FIFO can block, and reading a device may never
// end. It limits the number of bytes that it reads.
//
// Symlinks are followed, because only root can write to these paths. For files that pods or images
// can create, use package internal/untrusted.
package regular
