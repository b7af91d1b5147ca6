package store

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/islet-edge/islet/internal/bundle/sealed"
)

// ErrNoRecipient means that the node has no key yet, so nobody can have sealed a Secret for it.
var ErrNoRecipient = errors.New("this node has no key for sealed Secrets yet: islet key recipient makes it and prints its public key")

// MakeRecipient returns the node's public key for sealed Secrets (age1...). It creates the key file if there is none. It fails if the
// database is only in memory and there is no key file, because a new key would be lost.
func (s *Store) MakeRecipient() (string, error) {
	if recipient, err := s.Recipient(); !errors.Is(err, ErrNoRecipient) {
		return recipient, err
	}
	if err := s.makeKey(); err != nil {
		return "", err
	}
	return s.Recipient()
}

// makeKey creates the key file if there is none.
func (s *Store) makeKey() error {
	if _, err := s.seal.loadCipher(false); !errors.Is(err, errNoKey) {
		return err
	}
	if why := s.Health().Volatile; why != "" {
		return fmt.Errorf("a new key of this node would be lost: %s", why)
	}
	_, err := s.seal.loadCipher(true)
	return err
}

// Signer returns the private key that signs the state of the node. It creates the key file under the same conditions as MakeRecipient.
func (s *Store) Signer() (ed25519.PrivateKey, error) {
	if err := s.makeKey(); err != nil {
		return nil, err
	}
	s.seal.mu.Lock()
	defer s.seal.mu.Unlock()
	return s.seal.key.Signer()
}

// Recipient returns the node's public key for sealed Secrets. The error is ErrNoRecipient if there is no key file.
func (s *Store) Recipient() (string, error) {
	id, err := s.seal.identity()
	if err != nil {
		return "", err
	}
	return id.Recipient(), nil
}

// OpenSecret decrypts a Secret that is sealed for this node. The error is ErrNoRecipient if there is no key file. It does not contain
// decrypted data.
func (s *Store) OpenSecret(d *sealed.Document) (*sealed.Secret, error) {
	id, err := s.seal.identity()
	if err != nil {
		return nil, fmt.Errorf("open the Secret %s/%s: %w", d.Metadata.Namespace, d.Metadata.Name, err)
	}
	return id.Open(d)
}

// identity returns the node's private key for sealed Secrets. It creates no key file.
func (s *seal) identity() (*sealed.Identity, error) {
	if _, err := s.loadCipher(false); errors.Is(err, errNoKey) {
		return nil, ErrNoRecipient
	} else if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key.Identity()
}
