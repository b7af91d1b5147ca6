package image

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
)

// diskFull is the error of a file system that has no space left for image data.
type diskFull struct {
	dir  string
	free int64
}

func (e *diskFull) Error() string {
	return fmt.Sprintf("the disk of %s is full: %d MiB are free and %d MiB are kept for running pods; remove images or other files",
		e.dir, e.free>>20, int64(reserve)>>20)
}

// Is reports a diskFull as ENOSPC.
func (e *diskFull) Is(target error) bool { return target == syscall.ENOSPC }

// inodesUsed is the error of a file system that has no inodes left for image data.
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
	// guardStep and guardFiles are the numbers of bytes and files that are written between two
	// checks of the disk.
	guardStep  = 8 << 20
	guardFiles = 256
	// reserveInodes is the number of inodes that imports and pulls leave free; on a small file
	// system it is 1/reserveShare of all inodes.
	reserveInodes = 4096
	reserveShare  = 20
)

// room returns an error unless the file system of dir has that much space in addition to the
// reserve for running pods.
func room(dir string, bytes, inodes int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); bytes < 0 || free-reserve < bytes {
		return &diskFull{dir: dir, free: free}
	}
	keep := min(int64(st.Files)/reserveShare, reserveInodes)
	// Files is 0 if the file system creates inodes dynamically.
	if free := int64(st.Ffree); st.Files > 0 && free-keep < inodes {
		return &inodesUsed{dir: dir, free: free, keep: keep}
	}
	return nil
}

// freeBytes returns the free space on the file system of dir; 0 if unknown.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// guard is a reader of data that is written to dir. It fails before the file system of dir is full,
// which also bounds decompression bombs.
type guard struct {
	io.Reader
	dir  string
	left int64 // bytes until the next check
	// wrote counts the bytes read, which are then written; may be nil.
	wrote *atomic.Uint64
}

func newGuard(r io.Reader, dir string) *guard { return &guard{Reader: r, dir: dir} }

// counting returns a guard that also counts towards Wrote.
func (s *Service) counting(r io.Reader) *guard {
	return &guard{Reader: r, dir: s.c.Root, wrote: &s.wrote}
}

// Wrote returns the number of bytes that pulls and imports have written since this process started:
// downloads and unpacked layers.
func (s *Service) Wrote() uint64 { return s.wrote.Load() }

func (g *guard) Read(p []byte) (int, error) {
	if g.left <= 0 {
		if err := room(g.dir, 0, 0); err != nil {
			return 0, err
		}
		g.left = guardStep
	}
	n, err := g.Reader.Read(p)
	g.left -= int64(n)
	if g.wrote != nil {
		g.wrote.Add(uint64(n))
	}
	return n, err
}

// filesGuard stops the unpacking of a layer before the file system of dir is full because of data
// that the stream's length does not show. A sparse file is short in the stream and as large on disk
// as its header says. A file without content takes an inode, and one for each directory in its
// name. Layers are unpacked concurrently, so promised is the total of all files that are about to
// be written.
type filesGuard struct {
	dir      string
	promised *atomic.Int64
	own      int64 // this layer's part of promised
	files    int64 // since the last check
	small    int64 // their size in bytes
}

// next is called with the header of each file before it is unpacked. It implements containerd's
// archive.Filter.
func (g *filesGuard) next(h *tar.Header) (bool, error) {
	g.done()
	g.files += 1 + int64(strings.Count(h.Name, "/"))
	if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse {
		g.own = max(h.Size, 0)
	}
	all := g.promised.Add(g.own)
	if g.small += g.own; g.small < guardStep && g.files < guardFiles {
		return true, nil
	}
	if err := room(g.dir, all, g.files); err != nil {
		return false, err
	}
	g.files, g.small = 0, 0
	return true, nil
}

// done subtracts a written file from promised.
func (g *filesGuard) done() {
	g.promised.Add(-g.own)
	g.own = 0
}
