// Package containerfiles copies files from and to a running container that has no tar.
//
//	runtime --PID--> Open: /proc/PID/root, pinned --> Root
//	Root.Prepare, Packer.Pack: files of the container --> archive
//	Root.Unpack:               archive --> files of the container, which belong to the container's user
//
// Names are resolved as in a chroot to the container's root, even while the container changes its files. So a symlink
// always leads to a file of the container. Read-only mounts stay read-only. Devices and FIFOs are never opened. Unpack
// writes as the container's user, so the container cannot redirect a copy to a file that this user may not write.
package containerfiles
