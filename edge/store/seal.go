package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/islet-edge/islet/internal/durable"
)

// KeyFile is the name of the key file in the directory of the database. Its key encrypts confidential columns.
const KeyFile = "store.key"

const keySize = 32 // AES-256

// errNoKey means that the key file is missing, so encrypted data cannot be decrypted.
var errNoKey = errors.New("the key file is gone")

// A seal encrypts columns of the database with AES-256-GCM. An encrypted ("sealed") value is bound to its row, and cannot be decrypted as a
// value of another row. The key file is created before the first value is encrypted. It is never replaced.
type seal struct {
	path string

	mu   sync.Mutex
	aead cipher.AEAD // nil until the key is read
	key  []byte      // content of the key file
	hash []byte      // key for hashes, derived from key
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
	key, err := readKey(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		if !make {
			return nil, fmt.Errorf("%s: %w", s.path, errNoKey)
		}
		if err := makeKey(s.path); err != nil {
			return nil, fmt.Errorf("make the key file %s: %w", s.path, err)
		}
		key, err = readKey(s.path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key file: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	if s.hash, err = hkdf.Key(sha256.New, key, nil, "islet: who pulled an image", sha256.Size); err != nil {
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
	if s.key == nil {
		return false
	}
	_, err := os.Lstat(s.path)
	return errors.Is(err, fs.ErrNotExist)
}

// restore creates the key file again if it was removed.
func (s *seal) restore() error {
	if !s.keyRemoved() {
		return nil
	}
	return durable.Write(s.path, s.key, 0o600)
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

func readKey(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() != keySize {
		return nil, fmt.Errorf("%s is not a key file of %d bytes: restore the right one, or remove it to begin with a new key",
			path, keySize)
	}
	if fi.Mode().Perm() != 0o600 {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, err
		}
	}
	return os.ReadFile(path)
}

// makeKey creates the key file. The file gets its name after its content is on the disk. makeKey does not replace an existing key file.
func makeKey(path string) error {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), KeyFile+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
