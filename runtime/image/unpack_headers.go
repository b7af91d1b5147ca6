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
	// fileCost is the approximate memory for a file of a layer while the layer is unpacked, without
	// the file's path. dirCost is the additional memory for a directory, without its name and
	// attributes. Both are in bytes.
	fileCost, dirCost = 64, 512
	// xattrPrefix is the prefix of PAX records of extended attributes.
	xattrPrefix = "SCHILY.xattr."
)

// layerNames sets two limits for unpacking a layer: the memory for the paths and headers of its
// files, and the number of bytes that are read and written for the files. containerd keeps the path
// of each file and the header of each directory in memory.
type layerNames struct {
	in           *positionReader
	root         string // directory in which the layer is unpacked
	disk         string // a path on the same file system
	reserveSpace func(bytes int64) error

	hasSymlink bool   // whether there was a symbolic link; a resolved path may then be longer than the name
	dir, path  string // directory of the last file, and its resolved path
	size, most int64  // total size of the files, and size of the file system
}

// checkHeader is called with the header of each file before it is unpacked. It implements containerd's
// archive.Filter, and removes fields from the header that are not needed.
func (l *layerNames) checkHeader(h *tar.Header) error {
	if len(h.Name) > maxName || len(h.Linkname) > maxName {
		return fmt.Errorf("the name %.40q... or its link target has more than %d bytes: %w",
			h.Name, maxName, errdefs.ErrInvalidArgument)
	}
	if err := l.limitContent(h); err != nil {
		return err
	}
	// Clone the strings. They are substrings of the header's records, which would otherwise stay in
	// memory.
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
		l.hasSymlink = true
	}
	if dir := filepath.Dir(h.Name); l.hasSymlink && dir != l.dir {
		path, err := fs.RootPath(l.root, dir)
		if err != nil {
			return fmt.Errorf("path of %q: %w", h.Name, err)
		}
		l.dir, l.path = dir, path
	}
	return l.reserveSpace(cost + int64(max(len(l.root), len(l.path))))
}

// limitContent limits the number of bytes that are read from the stream for this file, and the total
// size of all files.
func (l *layerNames) limitContent(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
		l.in.allowFile(0)
		return nil
	}
	if l.most == 0 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(l.disk, &st); err != nil {
			return fmt.Errorf("size of the file system of %s: %w", l.disk, err)
		}
		l.most = int64(st.Blocks) * int64(st.Bsize)
	}
	if h.Size > l.most { // the header of a sparse file may contain such a size
		return checkSpace(l.disk, h.Size, 0)
	}
	l.in.allowFile(h.Size)
	if l.size += h.Size; l.size > l.most+maxTwice {
		return fmt.Errorf("the files of the layer are larger than the disk of %s: %w", l.disk, errdefs.ErrInvalidArgument)
	}
	return nil
}

// maxTwice is the number of bytes by which the files of a layer may exceed the size of the disk. A
// layer may contain the same file several times.
const maxTwice = 1 << 30

// bottomWhiteout handles whiteouts in the first layer of an image, which has no lower layer. A
// whiteout removes a file of the same layer. The marker of an opaque directory is skipped: there is
// no lower directory to hide, and containerd's walk of the directory could take hours.
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

// A yieldingReader is a reader that calls yield before each read.
type yieldingReader struct {
	io.Reader
	yield func() error
}

func (y yieldingReader) Read(p []byte) (int, error) {
	if err := y.yield(); err != nil {
		return 0, err
	}
	return y.Reader.Read(p)
}
