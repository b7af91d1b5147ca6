// Package feed fetches bundles from web servers and registries, and follows one of them.
//
//	https://.../kiosk.tar --ranges, or the whole tar--.
//	https://.../kiosk/ --blobs of a directory---------+--> Layout --> agent/change/bundle: verifies, stages, tries
//	oci://.../kiosk:42 --blobs of a repository--------'     |  ^
//	                                                        v  |
//	                           STATE/bundle-download: layers, resumed after a break
//
//	Follower: conditional request --another bundle--> Applier (agent/change/bundle)
//	   ^            |
//	   '-- wait <---'  STATE/bundle-source.json: what was seen last, and the time of the next request
//
// A server is not trusted. A Layout fetches only blobs that the node lacks, and the package internal/bundle verifies the digest of each
// blob. Before the signatures are verified, nothing is written to the disk, except the first bytes of a tar that a server sends only as a
// whole. Afterwards a file has at most the size in a signed document, and the disk keeps its reserve.
package feed
