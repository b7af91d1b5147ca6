// Package keyfile reads, seals and unseals store.key, the file with the key that encrypts confidential rows of the database.
//
//	no file --Make--> 32 bytes <--Unseal-- a document in JSON: the key sealed to a TPM,
//	                     |                 and the key encrypted with a recovery key
//	                     '------Seal----->        |
//	                     |                        | Read: package tpm, in memory only
//	                     v                        v
//	                  the key                  the key
//
// The file always has one of these two contents, because each change is one rename. A new content is synced, read back and opened before
// it gets the file's name. So a power cut leaves a file that opens.
//
// The name and the place are the same for both contents. An islet without this package therefore rejects a sealed key, and does not begin
// with a new one.
//
// The node's private key for sealed Secrets (internal/bundle/sealed) is derived from the key of the database and stored nowhere. So the
// TPM and the recovery key protect both keys. The private key stays the same when the file is sealed or unsealed, when the database is
// lost, and when the file is moved to another board.
package keyfile
