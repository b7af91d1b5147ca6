package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/untrusted"
)

// filler is the character that overwrites secrets. No secret contains it.
const filler = "_"

// A secret is a place of islet.yaml that is overwritten after it was used.
type secret struct {
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	Sum    string `json:"sum"` // of the text
}

// findSecrets returns all places of a text.
func findSecrets(data []byte, text string) (list []secret) {
	for from := 0; text != ""; {
		at := bytes.Index(data[from:], []byte(text))
		if at < 0 {
			break
		}
		list = append(list, secret{from + at, len(text), sum([]byte(text))})
		from += at + len(text)
	}
	return list
}

// sum returns the SHA-256 of data. It is not inlined, because it is called in many places.
//
//go:noinline
func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// mask returns the file as it is once its secrets are removed. It returns nil if a secret lies outside the file.
func mask(data []byte, secrets []secret) []byte {
	masked := bytes.Clone(data)
	for _, s := range secrets {
		if s.Offset < 0 || s.Length < 0 || s.Offset > len(masked)-s.Length {
			return nil
		}
		copy(masked[s.Offset:], strings.Repeat(filler, s.Length))
	}
	return masked
}

// isFile reports whether data is the file of the record: as it was applied, or with its secrets overwritten, completely or in part. A file
// with another secret is another file.
func (r *record) isFile(data []byte) bool {
	if r.Digest == "" || sum(mask(data, r.Secrets)) != r.Digest {
		return false
	}
	for _, s := range r.Secrets {
		if text := data[s.Offset : s.Offset+s.Length]; !bytes.Contains(text, []byte(filler)) && sum(text) != s.Sum {
			return false
		}
	}
	return true
}

// errEdited means that the file differs from the file that was applied.
var errEdited = errors.New("it was edited since it was applied")

// removeSecrets overwrites the secrets of the applied file in place, and syncs the file.
func (r *record) removeSecrets() error {
	done, err := r.overwrite(os.O_RDONLY)
	if err == nil && !done {
		_, err = r.overwrite(os.O_RDWR)
	}
	return err
}

// overwrite reports whether the secrets of the file are removed. With the flag os.O_RDWR, it first removes them, in the same open file that
// it has compared with the record.
func (r *record) overwrite(flag int) (done bool, err error) {
	f, err := untrusted.OpenFile(filepath.Dir(r.File), filepath.Base(r.File), flag, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return false, err
	}
	if !r.isFile(data) {
		return false, errEdited
	}
	masked := mask(data, r.Secrets)
	if bytes.Equal(masked, data) || flag == os.O_RDONLY {
		return bytes.Equal(masked, data), nil
	}
	for _, s := range r.Secrets {
		if _, err := f.WriteAt(masked[s.Offset:s.Offset+s.Length], int64(s.Offset)); err != nil {
			return false, errors.Join(fmt.Errorf("overwrite: %w", err), f.Sync())
		}
	}
	return true, f.Sync()
}
