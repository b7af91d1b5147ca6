package signed

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/islet-edge/islet/internal/regular"
)

const (
	// keyHead is the prefix of a public key's text.
	keyHead = "islet-ed25519 "
	// privateHead is the prefix of a private key's text.
	privateHead = "islet-ed25519-private "
	// maxKeyFile is the maximum size of a file with a private key, in bytes.
	maxKeyFile = 4 << 10
)

// A Key is the public key of a signer.
type Key ed25519.PublicKey

// ParseKey parses a public key: "islet-ed25519 BASE64". The error for a private key does not contain any of it.
func ParseKey(text string) (Key, error) {
	if strings.HasPrefix(strings.TrimSpace(text), strings.TrimSpace(privateHead)) {
		return nil, errors.New("it is a private key instead of a public one")
	}
	code, ok := strings.CutPrefix(strings.TrimSpace(text), keyHead)
	b, err := base64.StdEncoding.DecodeString(code)
	if !ok || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%.60q is not a key: %sand 32 bytes in base64", text, keyHead)
	}
	return Key(b), nil
}

// ParseKeyList parses a list of public keys, one a line, with comments. The file is for errors.
func ParseKeyList(file string, text []byte) (keys []Key, err error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := ParseKey(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// PublicKey returns the public key of a private key.
func PublicKey(k ed25519.PrivateKey) Key { return Key(k.Public().(ed25519.PublicKey)) }

// String returns the text that ParseKey parses.
func (k Key) String() string { return keyHead + base64.StdEncoding.EncodeToString(k) }

// ID returns the name of the key in signatures.
func (k Key) ID() string {
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:8])
}

// NewKeyFile writes a new private key to a new file with mode 0600, and returns its public key. An existing file is an error. A file that
// could not be written completely is removed.
func NewKeyFile(file string) (Key, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %w, and a private key is never replaced: name another file, or remove this one if its key is not used",
			file, os.ErrExist)
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(f, privateHead+base64.StdEncoding.EncodeToString(key.Seed()))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(file))
	}
	return Key(public), nil
}

// ReadKeyFile reads a private key that NewKeyFile has written.
func ReadKeyFile(file string) (ed25519.PrivateKey, error) {
	b, err := regular.Read(file, maxKeyFile)
	if err != nil {
		return nil, err
	}
	code, ok := strings.CutPrefix(strings.TrimSpace(string(b)), privateHead)
	seed, err := base64.StdEncoding.DecodeString(code)
	if !ok || err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s contains no private key: it begins with %q and was made by 'islet bundle keys new' or packaging/sign",
			file, strings.TrimSpace(privateHead))
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
