// Package release verifies that an archive of islet is for this machine and was signed by the makers of islet. It
// also unpacks the program from the archive. The package has no side effects except on the files that the caller
// passes.
//
//	ARCHIVE.release --Parse--> Release: version, architecture, size, SHA-512, signatures
//	                             | VerifySignatures(keys, threshold): enough different keys have signed
//	                             v
//	ARCHIVE (tar, gzip) ------Extract--> islet or DIR/islet, 0755, synced, if it is the signed archive
//
// A release is a text. The signatures cover all lines above the line of dashes. So version,
// architecture, size and hash are signed, and are known before the archive is downloaded. An older
// version, another architecture or a wrong size is rejected without a download.
//
//	islet release 1
//	version: 0.2.0
//	arch: arm64
//	size: 16234567
//	sha512: 9b71...
//	---
//	4f2a9c0d11e28b77 kZ0L...
//
// Signatures protect against a server or a link that sends false data. The signed size protects against an endless
// download. The caller compares versions. This protects against an old release. Only one file is unpacked. Before
// that, the free space is checked. The number of unpacked bytes is limited. These rules protect against an archive
// that would fill the disk, take hours to unpack, or write to other paths. The threshold protects against the
// theft of one key.
package release
