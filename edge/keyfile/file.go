package keyfile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
)

// Name is the name of the key file in the directory of the database.
const Name = "store.key"

// Size is the size of a key in bytes. The key is one for AES-256.
const Size = 32

// maxFile is the maximum size of a sealed key file in bytes. A usual one has 1.5 KiB.
const maxFile = 16 << 10

const (
	sealedSuffix = ".sealed" // the sealed key that Seal prepares
	plainSuffix  = ".plain"  // the plain key that Seal removes, or that Unseal prepares
)

// ErrNone means that there is no key file. It does not wrap fs.ErrNotExist, because the file of a TPM's device can be missing, too.
var ErrNone = errors.New("there is no key yet")

// A Place says where the key is, and how a sealed key is opened.
type Place struct {
	Dir      string // directory of the database
	TPM      string // path of the TPM's device
	Policies string // directory of policy signatures

	// syncDir replaces durable.SyncDir, for tests.
	syncDir func(dir string) error
}

// Path returns the path of the key file.
func (p Place) Path() string { return filepath.Join(p.Dir, Name) }

// A Key is a key that was read from its file. Its methods must not be called concurrently.
type Key struct {
	Bytes  []byte
	Sealed bool // whether the file was sealed when it was read

	place   Place
	content []byte      // content of the file
	info    fs.FileInfo // of the file that has this content
}

// Read reads the key. It opens a sealed key with the TPM and writes nothing but the removal of a plain key that an interrupted Seal has
// left. The error is ErrNone if there is no key file.
func (p Place) Read() (*Key, error) {
	k := &Key{place: p}
	if err := k.load(); err != nil {
		return nil, err
	}
	if len(k.content) == Size {
		k.Bytes = k.content
		return k, nil
	}
	k.Sealed = true
	doc, err := decode(k.content)
	if err != nil {
		return nil, p.explain(err)
	}
	if k.Bytes, err = p.open(doc); err != nil {
		return nil, p.explain(err)
	}
	if unlock, err := p.lock(); err == nil {
		_ = p.removePlain() // the next start tries again, and islet key status reports the files
		unlock()
	}
	return k, nil
}

// Found reports whether the key file has a plain key or a document of a sealed key, and not the key of another program. It changes nothing.
func (p Place) Found() bool {
	content, err := regular.Read(p.Path(), maxFile)
	if err == nil && len(content) != Size {
		_, err = decode(content)
	}
	return err == nil
}

// IsSealed reports whether the key file is sealed. It does not open the key. It returns false for a file that is neither a sealed nor a
// plain key.
func (p Place) IsSealed() bool {
	k := Key{place: p}
	return k.load() == nil && k.isSealed()
}

func (k *Key) isSealed() bool { return len(k.content) > Size }

// load reads the content of the key file. The error is ErrNone if there is none.
func (k *Key) load() error {
	path := k.place.Path()
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrNone)
	}
	if err != nil {
		return err
	}
	wrong := fmt.Errorf("%s is not a key file: it is neither a key of %d bytes nor a sealed one: restore the right one, or remove it to "+
		"begin with a new key", path, Size)
	if !fi.Mode().IsRegular() || fi.Size() < Size || fi.Size() > maxFile {
		return wrong
	}
	if fi.Mode().Perm() != 0o600 {
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
	}
	content, err := regular.Read(path, maxFile)
	if err != nil {
		return err
	}
	if len(content) < Size || len(content) > Size && content[0] != '{' {
		return wrong
	}
	if bytes.Equal(content, make([]byte, Size)) {
		return fmt.Errorf("%s contains only zeros, which islet never uses as a key: restore the right key file, or remove this one to "+
			"begin with a new key", path)
	}
	k.content, k.info = content, fi
	return nil
}

// Removed reports whether the key file was removed after it was read. If the file was sealed or unsealed in the meantime, Removed reads its
// new content, so that Restore does not bring back an older one.
func (k *Key) Removed() bool {
	fi, err := os.Lstat(k.place.Path())
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if os.SameFile(fi, k.info) {
		return false
	}
	now := Key{place: k.place} // a file of another kind and another plain key are not used
	if now.load() == nil && (now.isSealed() || bytes.Equal(now.content, k.Bytes)) {
		k.content, k.info = now.content, now.info
	}
	return false
}

// Restore creates the key file again if it was removed. The file has its last content, so a sealed key stays sealed. Restore does not
// replace a file. It fails while an islet key command changes the key.
func (k *Key) Restore() error {
	if !k.Removed() {
		return nil
	}
	unlock, err := k.place.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if !k.Removed() {
		return nil
	}
	if err := k.place.create(k.content); err != nil {
		return err
	}
	_ = k.Removed() // the new file has another inode
	return nil
}

// Make creates the key file with a new key. It does not replace an existing key file.
func (p Place) Make() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	return p.create(key)
}

// create creates the key file with a content, unless a key file exists.
func (p Place) create(content []byte) error {
	f, err := os.CreateTemp(p.Dir, Name+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return p.link(f.Name())
}

// link gives a complete file the name of the key file, unless a key file exists.
func (p Place) link(from string) error {
	if err := os.Link(from, p.Path()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return p.sync()
}

func newKey() ([]byte, error) {
	key := make([]byte, Size)
	_, err := rand.Read(key)
	return key, err
}

// mayBePlain reports whether the package may write the plain key to a file of this name, beside the key file itself. These files are the
// plain key that Seal removes or that Unseal prepares, the numbered file of create, and the temporary files of durable.Write, also that of
// an earlier islet's Restore. TestNames checks the names of all files that the package creates.
func mayBePlain(name string) bool {
	number, numbered := strings.CutPrefix(name, Name+".")
	return numbered && strings.Trim(number, "0123456789") == "" || name == Name+plainSuffix ||
		name == durable.TemporaryPath(Name+plainSuffix) || name == durable.TemporaryPath(Name)
}

// plainCopies returns the paths of files that may contain the plain key although the key is sealed. They remain if Seal, Unseal, Make or
// Restore is interrupted.
func (p Place) plainCopies() (paths []string, err error) {
	entries, err := os.ReadDir(p.Dir)
	for _, e := range entries {
		if mayBePlain(e.Name()) {
			paths = append(paths, filepath.Join(p.Dir, e.Name()))
		}
	}
	return paths, err
}

// removePlain overwrites and removes the plain copies of the key. A copy may be a second name of the key file itself, which is only
// removed. On flash storage, the overwritten bytes may remain in the device. The caller must have the lock.
//
// A copy may be the previous content of the key file, and the rename that replaced it may not be durable yet. So removePlain first syncs
// the directory. Otherwise, after a power cut, the overwritten content could have the name of the key file again.
func (p Place) removePlain() error {
	paths, err := p.plainCopies()
	if len(paths) == 0 || err != nil {
		return err
	}
	if err := p.sync(); err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, p.overwrite(path), os.Remove(path))
	}
	return errors.Join(append(errs, p.sync())...)
}

// sync makes the names in the directory durable.
func (p Place) sync() error {
	if p.syncDir != nil {
		return p.syncDir(p.Dir)
	}
	return durable.SyncDir(p.Dir)
}

func (p Place) overwrite(path string) error {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() {
		return err
	}
	if used, err := os.Lstat(p.Path()); err != nil || os.SameFile(fi, used) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, min(fi.Size(), maxFile)))
	return errors.Join(err, f.Sync(), f.Close())
}
