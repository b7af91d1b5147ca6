package bundle

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
)

// A Tar is a layout in a tar. NewTar reads only the headers of the entries.
type Tar struct {
	file    io.ReaderAt
	close   func() error
	entries map[string]extent
	links   map[string]string
}

// An extent is the position of a file in a tar.
type extent struct{ offset, size int64 }

// A tarForm is what a kind of tar may contain.
type tarForm struct {
	links   bool
	maxName int  // the maximum length of a name and of a link's target, in bytes: PAX allows 1 MiB
	cut     bool // the end may be missing
}

// NewTar reads the headers of a bundle's tar. It takes over the file unless it returns an error.
func NewTar(f *os.File) (*Tar, error) { return newFileTar(f, tarForm{maxName: maxEntryName}) }

// NewImageTar is like NewTar for a tar with links, such as one of docker save.
func NewImageTar(f *os.File) (*Tar, error) {
	return newFileTar(f, tarForm{links: true, maxName: maxPath})
}

// NewRemoteTar is like NewTar for a tar of size bytes that is not a file, such as one on a server.
func NewRemoteTar(r io.ReaderAt, size int64) (*Tar, error) {
	return newTar(r, size, func() error { return nil }, tarForm{maxName: maxEntryName})
}

// NewTarHead returns the layout of the first size bytes of a bundle's tar. Reads of an entry that continues after them fail.
func NewTarHead(r io.ReaderAt, size int64) (*Tar, error) {
	return newTar(r, size, func() error { return nil }, tarForm{maxName: maxEntryName, cut: true})
}

func newFileTar(f *os.File, form tarForm) (*Tar, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return newTar(f, info.Size(), f.Close, form)
}

func newTar(r io.ReaderAt, size int64, closeFile func() error, form tarForm) (*Tar, error) {
	f := io.NewSectionReader(r, 0, size)
	t := &Tar{file: r, close: closeFile, entries: map[string]extent{}, links: map[string]string{}}
	in := tar.NewReader(f)
	for range maxEntries + 1 { // the last one is the end
		h, err := in.Next()
		if errors.Is(err, io.EOF) || form.cut && errors.Is(err, io.ErrUnexpectedEOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a tar archive, or it is damaged: %w", err)
		}
		at, err := f.Seek(0, io.SeekCurrent) // the reader does not read ahead
		if err != nil {
			return nil, err
		}
		if err := t.add(h, extent{at, h.Size}, size, form); err != nil {
			return nil, fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
	return nil, fmt.Errorf("it has more than %d entries", maxEntries)
}

// add records an entry of a tar with the given size.
func (t *Tar) add(h *tar.Header, at extent, size int64, form tarForm) error {
	if len(h.Name) > form.maxName || len(h.Linkname) > form.maxName {
		return fmt.Errorf("its name or the target of its link has more than %d bytes", form.maxName)
	}
	name := path.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return nil
	case tar.TypeReg:
	case tar.TypeSymlink, tar.TypeLink:
		if !form.links {
			return errors.New("links are not allowed")
		}
		target := h.Linkname
		if h.Typeflag == tar.TypeSymlink {
			target = path.Join(path.Dir(name), target)
		}
		t.links[name] = path.Clean(target)
		return nil
	default:
		return errors.New("only regular files and directories are allowed")
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return errors.New("sparse files are not allowed")
		}
	}
	if at.size < 0 || at.offset > size || !form.cut && at.size > size-at.offset {
		return fmt.Errorf("the file ends before it: %w", io.ErrUnexpectedEOF)
	}
	if _, twice := t.entries[name]; twice && !form.links {
		return errors.New("it is there twice")
	}
	t.entries[name] = at // the last one counts, as for tar
	return nil
}

// Extent returns the position of a blob in the tar. If there is no such blob, found is false.
func (t *Tar) Extent(d digest.Digest) (offset, size int64, found bool) {
	e, found := t.entries[blobFile(d)]
	return e.offset, e.size, found
}

// Open opens an entry. Several readers can be used at once.
func (t *Tar) Open(name string) (io.ReadCloser, int64, error) {
	if target, ok := t.links[name]; ok {
		name = target
	}
	e, ok := t.entries[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(t.file, e.offset, e.size)), e.size, nil
}

// Close closes the file.
func (t *Tar) Close() error { return t.close() }
