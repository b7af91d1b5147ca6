// Package signed reads and writes short texts with Ed25519 signatures, such as the description of a release or of a bundle.
//
//	fields --Format.New--> Text --Sign(private keys)--> Bytes: one field per line, dashes, one signature per line
//	                                                      |
//	                                                      v
//	           Verify(public keys, threshold) <--Text-- Format.Parse
//
// The signatures cover all lines above the line of dashes:
//
//	islet release 1
//	version: 0.2.0
//	...
//	---
//	4f2a9c0d11e28b77 kZ0L...
//
// A text has exactly the fields of its format, in their order, and one spelling of each value is the task of the caller. So there is only
// one text for a set of values, and every signer signs the same bytes. The threshold protects against the theft of one key.
package signed
