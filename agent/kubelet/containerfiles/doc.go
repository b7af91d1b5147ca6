// Package containerfiles copies files from and to a running container that has no tar.
//
//	runtime --PID--> Open: /proc/PID/root, pinned --> Root
//	Root.Prepare, Packer.Pack: files of the container --> archive
//	Root.Unpack:               archive --> files of the container, which belong to the container's user
//
// Names are resolved as in a chroot to the container's root, also while the container changes its files: symlinks lead to
// files of the container, read-only mounts stay read-only, and devices and FIFOs are never opened.
package containerfiles
