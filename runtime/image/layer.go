package image

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/mounts"
)

const (
	// A file of a layer takes its path and fileCost bytes of memory until the layer
	// is unpacked, and a directory dirCost beside its name and attributes.
	fileCost, dirCost = 64, 512
	// xattrPrefix is how PAX records of extended attributes begin.
	xattrPrefix = "SCHILY.xattr."
)

// layerNames bounds what the files of a layer take in memory while it is unpacked,
// and how much is read and written for them. containerd keeps the path of each
// file, and all headers of directories.
type layerNames struct {
	in   *position
	root string // where the layer is unpacked
	disk string // a path on its file system
	need func(bytes int64) error

	linked     bool   // there was a symbolic link, so a path may be longer than its name
	dir, path  string // the directory of the last file, and what it resolves to
	size, most int64  // bytes of all files, and of the file system
}

// next is called before each file, with its header; containerd's archive.Filter.
// It takes from the header what is not needed.
func (l *layerNames) next(h *tar.Header) error {
	if len(h.Name) > maxName || len(h.Linkname) > maxName {
		return fmt.Errorf("the name %.40q... or what it links to has more than %d bytes: %w", h.Name, maxName, errdefs.ErrInvalidArgument)
	}
	if err := l.content(h); err != nil {
		return err
	}
	// Each string is a part of all records of the header, which would stay in memory.
	h.Name, h.Linkname, h.Uname, h.Gname = strings.Clone(h.Name), strings.Clone(h.Linkname), "", ""
	maps.DeleteFunc(h.PAXRecords, func(key, _ string) bool { return !strings.HasPrefix(key, xattrPrefix) })
	cost := int64(fileCost + len(h.Name))
	if h.Typeflag == tar.TypeDir {
		cost += dirCost + int64(len(h.Name))
		kept := map[string]string{}
		for key, value := range h.PAXRecords {
			kept[strings.Clone(key)] = strings.Clone(value)
			cost += int64(fileCost + len(key) + len(value))
		}
		h.PAXRecords = kept
	}
	if h.Typeflag == tar.TypeSymlink {
		l.linked = true
	}
	if dir := filepath.Dir(h.Name); l.linked && dir != l.dir {
		path, err := fs.RootPath(l.root, dir)
		if err != nil {
			return fmt.Errorf("path of %q: %w", h.Name, err)
		}
		l.dir, l.path = dir, path
	}
	return l.need(cost + int64(max(len(l.root), len(l.path))))
}

// content bounds how much is read of the stream for this file, and written for all.
func (l *layerNames) content(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
		l.in.allow(0)
		return nil
	}
	if l.most == 0 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(l.disk, &st); err != nil {
			return fmt.Errorf("size of the file system of %s: %w", l.disk, err)
		}
		l.most = int64(st.Blocks) * int64(st.Bsize)
	}
	if h.Size > l.most { // a sparse file may say so
		return room(l.disk, h.Size, 0)
	}
	l.in.allow(h.Size)
	if l.size += h.Size; l.size > l.most+maxTwice {
		return fmt.Errorf("the files of the layer have more bytes than the disk of %s: %w", l.disk, errdefs.ErrInvalidArgument)
	}
	return nil
}

// maxTwice is how much a layer may write of files that it has several times, beyond
// the size of the disk, in bytes.
const maxTwice = 1 << 30

// bottomWhiteout handles whiteouts in an image's first layer, where there is nothing
// to hide: a whiteout removes what the layer itself has, and to make a directory
// opaque changes nothing. Walking for it is what could take hours.
func bottomWhiteout(_ *tar.Header, path string) (write bool, err error) {
	const prefix, opaque = ".wh.", ".wh..wh..opq"
	base := filepath.Base(path)
	switch {
	case base == opaque:
		return false, nil
	case strings.HasPrefix(base, prefix):
		return false, mounts.RemoveAll(filepath.Join(filepath.Dir(path), strings.TrimPrefix(base, prefix)))
	}
	return true, nil
}

// yielding is a reader that yields before each read.
type yielding struct {
	io.Reader
	yield func() error
}

func (y yielding) Read(p []byte) (int, error) {
	if err := y.yield(); err != nil {
		return 0, err
	}
	return y.Reader.Read(p)
}
