// Package release verifies that an archive of islet was signed by its makers and is for this
// machine, and unpacks the program from it. It has no side effects except on the files that it is
// given.
//
//	ARCHIVE.release --Parse--> Release: version, architecture, size, SHA-512, signatures
//	                             | Signed(keys, threshold): enough different keys have signed
//	                             v
//	ARCHIVE (tar, gzip) ------Extract--> islet or DIR/islet, 0755, synced, if it is the signed archive
//
// A release is a text. The signatures cover everything above the line of dashes, so every fact that
// is trusted is signed, and all of it is known before the archive is downloaded. An older version,
// another architecture or a wrong size is rejected without a download.
//
//	islet release 1
//	version: 0.2.0
//	arch: arm64
//	size: 16234567
//	sha512: 9b71...
//	---
//	4f2a9c0d11e28b77 kZ0L...
//
// Threats and countermeasures: a server or link that sends false data (signatures); one that sends
// an old release again (the caller compares versions) or sends without end (sizes); an archive that
// unpacks to more than the disk holds, for hours, or to other paths (only one file is unpacked, for
// which there is space, and the unpacked bytes are limited); a thief of one key (threshold).
package release
