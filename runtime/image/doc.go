// Package image manages the images of this node. It imports them from archives, pulls them from
// registries and unpacks them, so that containers start at once. It implements the CRI's
// ImageService and resolves images for the container runtime.
//
//	<state-dir>/images/*.tar --Inbox--+
//	islet images import --------------+--> ImportArchive --+
//	                                                       +--> choose platform --> unpack layers --> record
//	kubelet, crictl, islet images pull --> PullImage ------+                            |               |
//	                                                                               snapshots     containerd's metadata
//	runtime/ctrd <-- Resolve <--+                                                                       |
//	ListImages, ImageStatus  <--+------------------------ index (in memory, built once) <---------------+
//
// An image is recorded after all of its layers are unpacked and flushed to disk. So a recorded image is complete, even after a power cut.
// Until the image is recorded, a containerd lease protects its data. If an import fails, the data is removed with the lease. The lease of a
// failed pull is kept for a day, so that the next pull can resume it. If the process ends while it unpacks layers, the unpacked layers may
// be damaged. So the next process removes them before it unpacks its first layer. If a flush fails, the layers that it should have written
// are removed too, and every pull and import that runs at that time fails.
//
// Flash storage is small and wears out. Therefore compressed layers are deleted once they are
// unpacked, because containers need only the snapshots. An archive that is a regular file is
// unpacked in place. The goroutine that writes a stream also decompresses it, so a layer of any
// size needs only a few MiB of memory.
//
// Only a Service writes image records, so its index needs no watch. The name of a record is a tag,
// a digest, or the image ID if the image has no name. The repo digests of a tag are derived and not
// stored. When a tag moves to another image, the old image remains with a record under its digest
// until it is removed.
package image
