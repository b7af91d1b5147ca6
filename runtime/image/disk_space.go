package image

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
)

// A diskFull is the error of a file system that has too little free space for image data.
type diskFull struct {
	dir  string
	free int64
}

func (e *diskFull) Error() string {
	return fmt.Sprintf("the disk of %s is full: %d MiB are free and %d MiB are kept for running pods; remove images or other files",
		e.dir, e.free>>20, int64(reservedSpace)>>20)
}

// Is implements the method that errors.Is calls: a diskFull counts as ENOSPC.
func (e *diskFull) Is(target error) bool { return target == syscall.ENOSPC }

// An inodesUsed is the error of a file system that has too few free inodes for image data.
type inodesUsed struct {
	dir        string
	free, keep int64
}

func (e *inodesUsed) Error() string {
	return fmt.Sprintf("the disk of %s can hold no more files: %d inodes are free and %d are kept for running pods; "+
		"remove images or other files",
		e.dir, e.free, e.keep)
}

func (e *inodesUsed) Is(target error) bool { return target == syscall.ENOSPC }

const (
	// checkBytes is the number of bytes that are written between two checks of the free space.
	// checkFiles is the number of files that are written between two checks.
	checkBytes = 8 << 20
	checkFiles = 256
	// reserveInodes is the number of inodes that imports and pulls leave free. On a small file
	// system they leave 1/reserveShare of all inodes free.
	reserveInodes = 4096
	reserveShare  = 20
)

// reservedSpace is the disk space that imports and pulls leave free, in bytes. Pods and the store can
// use it to continue to write.
const reservedSpace = 64 << 20

// checkSpace returns an error if the file system of dir has too few free bytes or inodes. The
// reserve for running pods must stay free, too.
func checkSpace(dir string, bytes, inodes int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); bytes < 0 || free-reservedSpace < bytes {
		return &diskFull{dir: dir, free: free}
	}
	keep := min(int64(st.Files)/reserveShare, reserveInodes)
	// The field Files is 0 if the file system creates inodes when they are needed.
	if free := int64(st.Ffree); st.Files > 0 && free-keep < inodes {
		return &inodesUsed{dir: dir, free: free, keep: keep}
	}
	return nil
}

// freeBytes returns the free space on the file system of dir, or 0 if it is unknown.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// A spaceReader reads data that is then written to dir. It fails before the file system of dir is
// full, so it also stops decompression bombs.
type spaceReader struct {
	io.Reader
	dir  string
	left int64 // number of bytes until the next check
	// wrote, if not nil, counts the bytes that were read.
	wrote *atomic.Uint64
}

func newSpaceReader(r io.Reader, dir string) *spaceReader { return &spaceReader{Reader: r, dir: dir} }

// newCountingReader returns a spaceReader whose bytes are included in WrittenBytes.
func (s *Service) newCountingReader(r io.Reader) *spaceReader {
	return &spaceReader{Reader: r, dir: s.c.Root, wrote: &s.wrote}
}

// WrittenBytes returns the number of bytes of downloads and unpacked layers that pulls and imports have
// written since this process started.
func (s *Service) WrittenBytes() uint64 { return s.wrote.Load() }

func (g *spaceReader) Read(p []byte) (int, error) {
	if g.left <= 0 {
		if err := checkSpace(g.dir, 0, 0); err != nil {
			return 0, err
		}
		g.left = checkBytes
	}
	n, err := g.Reader.Read(p)
	g.left -= int64(n)
	if g.wrote != nil {
		g.wrote.Add(uint64(n))
	}
	return n, err
}

// A spaceFilter stops the unpacking of a layer before the file system of dir is full. It checks the
// headers of the files, because a file may need more disk space than it has bytes in the stream: a
// sparse file can become as large as its header says, and an empty file needs inodes for itself and
// for the directories in its name. Several layers are unpacked at the same time. The counter
// promised is the total size of the files that all of these layers are about to write.
type spaceFilter struct {
	dir          string
	promised     *atomic.Int64
	promisedHere int64 // the part of promised that is for this layer
	files        int64 // number of files since the last check
	small        int64 // size of these files in bytes
}

// checkHeader is called with the header of each file before it is unpacked. It implements containerd's
// archive.Filter.
func (g *spaceFilter) checkHeader(h *tar.Header) (bool, error) {
	g.subtractWritten()
	g.files += 1 + int64(strings.Count(h.Name, "/"))
	if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse {
		g.promisedHere = max(h.Size, 0)
	}
	total := g.promised.Add(g.promisedHere)
	if g.small += g.promisedHere; g.small < checkBytes && g.files < checkFiles {
		return true, nil
	}
	if err := checkSpace(g.dir, total, g.files); err != nil {
		return false, err
	}
	g.files, g.small = 0, 0
	return true, nil
}

// subtractWritten subtracts the size of a written file from the counter promised.
func (g *spaceFilter) subtractWritten() {
	g.promised.Add(-g.promisedHere)
	g.promisedHere = 0
}
