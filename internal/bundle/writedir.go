package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/durable"
)

// WriteDir writes the bundle to a directory, which must be new or empty, or contain a bundle. It does not write a blob again that is
// already in the directory with the right bytes. It replaces index.json after all blobs, and then removes the blobs that the bundle does
// not have. So after an interruption, an error or a power loss, the directory contains either the old or the new bundle. It may contain
// blobs of both, which the next WriteDir uses or removes. WriteDir follows no symbolic link in the directory.
func (a *Artefact) WriteDir(dir string) error { return a.writeDir(dir, syncDir) }

// writeDir is like WriteDir. It calls sync for each directory whose entries must survive a power loss from then on.
func (a *Artefact) writeDir(dir string, sync func(*os.Root) error) (err error) {
	index, parts, err := a.layout()
	if err != nil {
		return err
	}
	root, err := openDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := checkDir(root, index); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if err := replaceFile(root, ocispec.ImageLayoutFile, NewPart("", layoutFile()), io.Discard); err != nil {
		return err
	}
	all, err := openSubdir(root, "blobs")
	if err != nil {
		return err
	}
	defer all.Close()
	blobs, err := openSubdir(all, "sha256")
	if err != nil {
		return err
	}
	defer blobs.Close()
	wanted := map[string]bool{}
	m := newMeter(parts, a.Progress)
	for _, p := range parts {
		name := p.Digest.Encoded()
		wanted[name] = true
		before := m.done
		if hasBlob(blobs, name, p.Descriptor, m) {
			continue
		}
		m.done = before // replaceFile counts the bytes of a damaged blob again
		if err := replaceFile(blobs, name, p, m); err != nil {
			return err
		}
	}
	for _, d := range []*os.Root{blobs, all, root} {
		if err := sync(d); err != nil {
			return err
		}
	}
	if err := replaceFile(root, ocispec.ImageIndexFile, NewPart("", index), io.Discard); err != nil {
		return err
	}
	if err := sync(root); err != nil { // the old index.json references blobs that are removed below
		return err
	}
	if err := removeOthers(blobs, wanted); err != nil {
		return err
	}
	return sync(blobs)
}

// syncDir syncs an open directory.
func syncDir(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openDir opens the directory of a bundle, and creates it if it does not exist.
func openDir(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Dir(filepath.Clean(dir))); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// openSubdir opens a directory in a directory, and creates it if it does not exist. A symbolic link is an error.
func openSubdir(root *os.Root, name string) (*os.Root, error) {
	if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s in %s is not a directory: remove it", name, root.Name())
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := sub.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s in %s was replaced", name, root.Name())
	}
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// checkDir returns an error unless a directory is empty or has a bundle, because WriteDir removes blobs. A bundle whose root is damaged
// can be written again if its index.json is the given one. A directory without index.json is one that an interrupted WriteDir has left.
func checkDir(root *os.Root, index []byte) error {
	entries, err := readEntries(root)
	if err != nil || len(entries) == 0 {
		return err
	}
	const advice = "name another directory, or empty this one"
	if _, err := root.Lstat(ocispec.ImageLayoutFile); err != nil {
		return errors.New("it is not empty and contains no bundle: " + advice)
	}
	l := directory{root}
	switch had, err := readFile(l, ocispec.ImageIndexFile, maxSmall); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(had, index):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %s", err, advice)
	}
	if _, err := readRoot(l); err != nil {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return nil
}

func readEntries(root *os.Root) ([]fs.DirEntry, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	return entries, errors.Join(err, d.Close())
}

// hasBlob reports whether a file contains the bytes of a blob. It also writes the bytes of the file to count.
func hasBlob(root *os.Root, name string, desc ocispec.Descriptor, count io.Writer) bool {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != desc.Size {
		return false
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return Part{desc, func() (io.ReadCloser, error) { return io.NopCloser(f), nil }}.copyTo(count) == nil
}

// replaceFile writes a new file and renames it to name. It also writes the bytes to count. It does not change the mode after the creation,
// because FAT has no modes.
func replaceFile(root *os.Root, name string, p Part, count io.Writer) error {
	next := ".new-" + name
	if err := root.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	err = errors.Join(p.copyTo(io.MultiWriter(f, count)), f.Sync(), f.Close())
	if err == nil {
		err = root.Rename(next, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(next))
	}
	return nil
}

// removeOthers removes the files of a directory whose names are not wanted.
func removeOthers(root *os.Root, wanted map[string]bool) error {
	entries, err := readEntries(root)
	for _, e := range entries {
		if !wanted[e.Name()] && !e.IsDir() {
			err = errors.Join(err, root.Remove(e.Name()))
		}
	}
	return err
}
