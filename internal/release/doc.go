// Package release says whether an archive of islet is one that its makers signed, for this
// machine, and takes the program out of it. It is pure but for the files it is given; it
// starts nothing and asks nobody.
//
//	ARCHIVE.release --Parse--> Release: version, architecture, size, SHA-512, signatures
//	                             | Signed(keys, threshold): so many different keys of those
//	                             v
//	ARCHIVE (tar, gzip) ------Extract--> islet or DIR/islet, 0755, synced, if all is what was signed
//
// A release is text. What is signed is all above the line of dashes, so nothing that is
// believed is outside of the signatures, and all of it is known before a byte of the archive
// is fetched: an older version, another architecture or a size that does not fit are refused
// for nothing.
//
//	islet release 1
//	version: 0.2.0
//	arch: arm64
//	size: 16234567
//	sha512: 9b71...
//	---
//	4f2a9c0d11e28b77 kZ0L...
//
// Who may abuse it: a server or link that lies (signatures), one that sends an old release
// again (the caller compares versions), sends without end (sizes), an archive that unpacks
// to more than the disk has, for hours, or to other paths (only one file is taken, for which
// there is room, and all that is unpacked is bounded), a thief of one key (threshold).
package release
