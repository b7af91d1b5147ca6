package keyfile

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/islet-edge/islet/internal/bundle/sealed"
)

// identityPurpose is the HKDF info string from which the node's identity is derived. If this string changed, no existing node could decrypt
// its sealed Secrets.
const identityPurpose = "islet: identity of a node for sealed Secrets"

// Identity returns the node's private key for sealed Secrets. The same key always gives the same identity.
func (k *Key) Identity() (*sealed.Identity, error) {
	private, err := hkdf.Key(sha256.New, k.Bytes, nil, identityPurpose, sealed.IdentitySize)
	if err != nil {
		return nil, fmt.Errorf("derive the key for sealed Secrets: %w", err)
	}
	return sealed.NewIdentity(private)
}

// signerPurpose is the HKDF info string from which the node's signing key is derived. If this string changed, the node would sign with
// another key.
const signerPurpose = "islet: signatures of a node's state"

// Signer returns the private key that signs the state of the node. The same key always gives the same signer.
func (k *Key) Signer() (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, k.Bytes, nil, signerPurpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key that signs the node's state: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
