// Package image manages the images of this node: it imports them from archives, pulls them from
// registries, unpacks them so that containers start at once, implements the CRI's ImageService and
// resolves images for the container runtime.
//
//	<state-dir>/images/*.tar --Inbox--+
//	islet images import --------------+--> ImportArchive --+
//	                                                       +--> choose platform --> unpack layers --> record
//	kubelet, crictl, islet images pull --> PullImage ------+                            |               |
//	                                                                               snapshots     containerd's metadata
//	runtime/ctrd <-- Resolve <--+                                                                       |
//	ListImages, ImageStatus  <--+------------------------ index (in memory, built once) <---------------+
//
// An image is recorded last, when all of its layers are unpacked and flushed to disk. So a recorded
// image is complete, even after a power cut. Everything that is created before is held by a
// containerd lease and removed with it when an import fails. A pull's lease is kept for a day, so
// that the next pull resumes. Layers that a dead process left half unpacked are not trusted: they
// are removed before the first layer is unpacked.
//
// Flash is small and wears out. Compressed layers are deleted once they are unpacked, because
// containers need only the snapshots, and an archive that is a regular file is unpacked in place.
// Streams are decompressed by the goroutine that writes them, so a layer of any size takes a few
// MiB of memory.
//
// A Service is the only writer of image records, so its index needs no watch. A record's name is a
// tag, a digest, or the image ID if the image has no name; repo digests of a tag are derived, not
// stored. When a tag moves to another image, the old image keeps a record under its digest until it
// is removed.
package image
