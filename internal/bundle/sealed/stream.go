package sealed

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// FileMagic is the beginning of each file that SealStream writes.
const FileMagic = "age-encryption.org/v1"

// SealStream encrypts what is written to the result. The last bytes are written by Close.
func SealStream(to io.Writer, recipients []age.Recipient) (io.WriteCloser, error) {
	return age.Encrypt(to, recipients...)
}

// Identities parses private keys, such as "AGE-SECRET-KEY-1...": one per line, with empty lines and comments that begin with #. The error
// contains no key.
func Identities(text string) (list []age.Identity, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i, err := age.ParseX25519Identity(line)
		if err != nil {
			return nil, errors.New("a line is not a private key (AGE-SECRET-KEY-1...)")
		}
		if list = append(list, i); len(list) > maxRecipients {
			return nil, fmt.Errorf("more than %d private keys", maxRecipients)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no private key (AGE-SECRET-KEY-1...)")
	}
	return list, nil
}

// NewKey returns a new private key and its public key.
func NewKey() (private, public string, err error) {
	i, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", err
	}
	return i.String(), i.Recipient().String(), nil
}

// ErrNotForKey means that the file is sealed to other keys.
var ErrNotForKey = errors.New("it is sealed to another key")

// OpenStream decrypts a file of SealStream. Reads fail if a byte was changed, or if the end is missing.
func OpenStream(from io.Reader, keys []age.Identity) (io.Reader, error) {
	r, err := age.Decrypt(from, keys...)
	var other *age.NoIdentityMatchError
	if errors.As(err, &other) || err != nil && errors.Is(err, age.ErrIncorrectIdentity) {
		return nil, ErrNotForKey
	}
	if err != nil {
		return nil, fmt.Errorf("it cannot be decrypted with this key, or is not a sealed file: %w", err)
	}
	return r, nil
}
