package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/islet-edge/islet/edge/keyfile"
)

// KeyFile is the name of the key file in the directory of the database. Its key encrypts confidential columns.
const KeyFile = keyfile.Name

// errNoKey means that the key file is missing, so encrypted data cannot be decrypted.
var errNoKey = errors.New("the key file is gone")

// A seal encrypts columns of the database with AES-256-GCM. An encrypted ("sealed") value is bound to its row, and cannot be decrypted as a
// value of another row. The key file is created before the first value is encrypted. The key is never replaced.
type seal struct {
	place keyfile.Place

	mu   sync.Mutex
	aead cipher.AEAD  // nil until the key is read
	key  *keyfile.Key // nil until the key is read
	hash []byte       // key for hashes, derived from key
}

// encrypt encrypts data for a row, which is identified by the name of the table and the key columns.
func (s *seal) encrypt(data []byte, row ...string) ([]byte, error) {
	aead, err := s.loadCipher(true)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(data)+aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return aead.Seal(nonce, nonce, data, rowIdentity(row)), nil
}

// decrypt decrypts data that was encrypted for the same row.
func (s *seal) decrypt(sealed []byte, row ...string) ([]byte, error) {
	aead, err := s.loadCipher(false)
	if err != nil {
		return nil, err
	}
	n := aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("it is too short to be sealed data")
	}
	return aead.Open(nil, sealed[:n], sealed[n:], rowIdentity(row))
}

// rowIdentity joins the name of the table and the key columns to a text that is unique for each row. No column contains a zero byte.
func rowIdentity(row []string) []byte { return []byte(strings.Join(row, "\x00")) }

func (s *seal) loadCipher(make bool) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil {
		return s.aead, nil
	}
	key, err := s.place.Read()
	if errors.Is(err, keyfile.ErrNone) {
		if !make {
			return nil, fmt.Errorf("%s: %w", s.place.Path(), errNoKey)
		}
		if err := s.place.Make(); err != nil {
			return nil, fmt.Errorf("make the key file %s: %w", s.place.Path(), err)
		}
		key, err = s.place.Read()
	}
	if err != nil {
		return nil, fmt.Errorf("read the key file: %w", err)
	}
	block, err := aes.NewCipher(key.Bytes)
	if err != nil {
		return nil, err
	}
	if s.hash, err = hkdf.Key(sha256.New, key.Bytes, nil, "islet: who pulled an image", sha256.Size); err != nil {
		return nil, err
	}
	s.aead, err = cipher.NewGCM(block)
	s.key = key
	return s.aead, err
}

// keyRemoved reports whether the key file was removed after it was read.
func (s *seal) keyRemoved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key != nil && s.key.Removed()
}

// restore creates the key file again if it was removed.
func (s *seal) restore() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil {
		return nil
	}
	return s.key.Restore()
}

// openSealed opens a key that is sealed to a TPM. It does nothing if the key is plain or does not exist yet.
func (s *seal) openSealed() error {
	if !s.place.IsSealed() {
		return nil
	}
	_, err := s.loadCipher(false)
	return err
}

// hashKey returns the key for Fingerprint.
func (s *seal) hashKey() ([]byte, error) {
	if _, err := s.loadCipher(true); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hash, nil
}
