package backup

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// modeMask are the bits of a file's mode that an archive keeps.
const modeMask = 0o755

// A writer writes an archive. Close completes it.
type writer struct {
	out     *tar.Writer
	entries int
}

func newWriter(w io.Writer, m *Manifest) (*writer, error) {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("the description of the backup has more than %d bytes", maxManifest)
	}
	out := &writer{out: tar.NewWriter(w)}
	return out, out.add(manifestName, 0o600, data)
}

func (w *writer) add(name string, mode fs.FileMode, data []byte) error {
	if err := w.header(name, mode, int64(len(data))); err != nil {
		return err
	}
	_, err := w.out.Write(data)
	return err
}

func (w *writer) header(name string, mode fs.FileMode, size int64) error {
	if w.entries++; w.entries > maxEntries {
		return fmt.Errorf("the backup has more than %d files", maxEntries)
	}
	return w.out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: int64(mode & modeMask), Size: size, Format: tar.FormatPAX})
}

// addFrom adds a file of a known size.
func (w *writer) addFrom(name string, mode fs.FileMode, size int64, from io.Reader) error {
	if err := w.header(name, mode, size); err != nil {
		return err
	}
	_, err := io.CopyN(w.out, from, size)
	return err
}

func (w *writer) Close() error { return errors.Join(w.header(endName, 0o600, 0), w.out.Close()) }

// An entry is a file of an archive.
type entry struct {
	name string
	mode fs.FileMode
	size int64
}

var errIncomplete = errors.New("the backup is incomplete: its end is missing")

// read reads an archive. It passes the manifest to begin, and each file to the function file, which reads the content. It returns an
// error unless the archive is complete.
func read(from io.Reader, begin func(*Manifest) error, file func(entry, io.Reader) error) error {
	in, seen, total := tar.NewReader(from), map[string]bool{}, int64(0)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return errIncomplete
		}
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		if err := checkHeader(h, seen, &total); err != nil {
			return err
		}
		switch {
		case h.Name == endName:
			return drain(from)
		case h.Name == manifestName:
			data, err := io.ReadAll(io.LimitReader(in, maxManifest))
			if err != nil {
				return fmt.Errorf("read the backup: %w", err)
			}
			m, err := decodeManifest(data)
			if err != nil {
				return err
			}
			err = begin(m)
			if err != nil {
				return err
			}
		default:
			if err := file(entry{h.Name, fs.FileMode(h.Mode) & modeMask, h.Size}, in); err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
		}
	}
}

// checkHeader returns an error if an archive must not have this entry.
func checkHeader(h *tar.Header, seen map[string]bool, total *int64) error {
	first := len(seen) == 0
	switch {
	case first != (h.Name == manifestName):
		return fmt.Errorf("%.80q is not the first file: this is not a backup of islet", manifestName)
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%.80q is not a regular file", h.Name)
	case seen[h.Name]:
		return fmt.Errorf("%.80q is there twice", h.Name)
	case len(seen) >= maxEntries:
		return fmt.Errorf("the backup has more than %d files", maxEntries)
	case h.Size > limitOf(h.Name):
		return fmt.Errorf("%.80q has more than %d bytes", h.Name, limitOf(h.Name))
	}
	if *total += h.Size; *total > maxTotal {
		return fmt.Errorf("the backup has more than %d bytes", int64(maxTotal))
	}
	seen[h.Name] = true
	if h.Name == manifestName || h.Name == endName {
		return nil
	}
	return checkName(h.Name)
}

// maxTail is the maximum number of bytes after the last entry.
const maxTail = 1 << 20

// drain reads the rest of the archive, because the encryption of a file is only complete with its last byte.
func drain(from io.Reader) error {
	n, err := io.CopyN(io.Discard, from, maxTail)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	return fmt.Errorf("the backup has more than %d bytes after its end", n)
}

// A KeyProof says whether the archive has the private key of its node, which only a backup of that node can have.
type KeyProof int

// Results of the examination of store.key. Without a key, a node has no public key either.
const (
	NoKey     KeyProof = iota
	SealedKey          // the key is sealed to a TPM, and was not opened
	ProvenKey
)

// A Summary says what an archive contains.
type Summary struct {
	Manifest *Manifest
	Files    int
	Bytes    int64 // of all files
	Database int64 // bytes of the database
	Bundles  int   // files of bundles
	// KeyProof says whether store.key fits Manifest.Recipient.
	KeyProof KeyProof

	key int64 // bytes of store.key
}

func (s *Summary) count(e entry) {
	s.Files, s.Bytes = s.Files+1, s.Bytes+e.size
	if e.name == stateDir+databaseName {
		s.Database = e.size
	}
	if e.name == stateDir+bundleRecord {
		s.Bundles++
	}
	if e.name == stateDir+keyName {
		s.key = e.size
	}
}

// Copy copies an archive, and checks it. The copy is complete only if there is no error.
func Copy(to io.Writer, from io.Reader) (*Summary, error) {
	var s Summary
	var out *writer
	err := read(from, func(m *Manifest) (err error) {
		s.Manifest = m
		out, err = newWriter(to, m)
		return err
	}, func(e entry, content io.Reader) error {
		s.count(e)
		return out.addFrom(e.name, e.mode, e.size, content)
	})
	if err != nil {
		return nil, err
	}
	return &s, errors.Join(s.check(), out.Close())
}

// check returns an error if the archive lacks what its node has.
func (s *Summary) check() error {
	if s.Database == 0 {
		return fmt.Errorf("the backup has no database (%s)", databaseName)
	}
	if m := s.Manifest; s.key == 0 && (m.Recipient != "" || m.Sealed) {
		return fmt.Errorf("the backup names the key of a node, and does not contain it (%s)", keyName)
	}
	return nil
}
