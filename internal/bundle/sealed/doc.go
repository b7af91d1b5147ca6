// Package sealed encrypts Secrets for the nodes that use them, and decrypts them there.
//
//	Secrets --Seal(recipients)--> NAME.sealed.yaml --Parse--> names and keys (readable by all)
//	                                                  |
//	                                                  '--Open(identity)--> Secret as JSON, with the names and keys above
//	                                                              ^
//	store.key --edge/keyfile: a derived key--> NewIdentity -------'
//
// The encryption is age's for X25519 recipients. What is readable in a sealed file is not authenticated by age: Open compares it with the
// decrypted Secret. The signature of a bundle covers the sealed file.
package sealed
