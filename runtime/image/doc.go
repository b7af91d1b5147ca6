// Package image keeps the images of this node: it imports them from archives,
// pulls them from registries, unpacks them so that containers start at once,
// and answers the CRI's ImageService and the container runtime about them.
//
//	<state-dir>/images/*.tar --Inbox--+
//	islet images import --------------+--> ImportArchive --+
//	                                                       +--> choose platform --> unpack layers --> record
//	kubelet, crictl, islet images pull --> PullImage ------+                            |               |
//	                                                                               snapshots     containerd's metadata
//	runtime/ctrd <-- Resolve <--+                                                                       |
//	ListImages, ImageStatus  <--+------------------------ index (in memory, built once) <---------------+
//
// An image is recorded last, when every layer of it is unpacked and flushed to
// disk, so what is recorded is complete, whatever happened to power or process
// before. Everything that is made on the way hangs on a lease of containerd and
// goes with it when the import fails; a pull's lease stays for a day, so that the
// next one goes on from there. What a process that died left half done is not
// trusted: it goes before the next one makes its first layer.
//
// Flash is small and wears: compressed layers are dropped once they are unpacked,
// for a snapshot is all that a container needs, and an archive that is a plain
// file is unpacked from where it lies. Streams are decompressed by the goroutine
// that writes them, so a layer of any size takes a few MiB of memory.
//
// A Service is the only writer of image records, so its index stays true
// without watching. A record is named by tag (or by digest, or by its ID when
// it has no name); repo digests of a tag are derived, not stored. When a tag
// moves, the image that had it stays under its digest until it is removed.
package image
