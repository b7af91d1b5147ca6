// Package tpm seals a small secret to a TPM 2.0 and opens it again.
//
//	Seal                                           Open
//	  |  secret, in an encrypted session             |  SRK: the same one as at Seal?
//	  v                                              v
//	TPM: object below the SRK, which only this     PCRs --> digest of the policy --> a signature of it
//	TPM can load, and whose policy is "whatever      |  VerifySignature, PolicyPCR, PolicyAuthorize
//	the policy key has signed"                       v
//	  |                                            TPM: Unseal, in an encrypted session
//	  v                                              |
//	Sealed (public data, to store in a file)         v
//	                                               secret
//
// The SRK is the primary key of the owner hierarchy with TCG's ECC P-256 template. The TPM derives it from a seed that never leaves the TPM
// and that changes when the TPM is cleared. Sealed contains the name of the SRK. Each session is salted with this SRK, and its parameters
// are encrypted. A program that only listens on the bus learns nothing. A program that answers in the TPM's place after Seal cannot read
// the secret, because it lacks the private key of the SRK.
//
// The object has no password. The TPM does not count failed attempts for it, so this package cannot cause a lockout.
//
// TPM 2.0 Library Specification, https://trustedcomputinggroup.org/resource/tpm-library-specification/
package tpm
