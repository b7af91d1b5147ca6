package image

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
)

// diskFull says that the file system of dir has no room for more image data.
type diskFull struct {
	dir  string
	free int64
}

func (e *diskFull) Error() string {
	return fmt.Sprintf("the disk of %s is full: %d MiB are free and %d MiB are kept for running pods; remove images or other files", e.dir, e.free>>20, int64(reserve)>>20)
}

// Is makes a diskFull what it is: no space left on device.
func (e *diskFull) Is(target error) bool { return target == syscall.ENOSPC }

// inodesUsed says that the file system of dir has no room for more files.
type inodesUsed struct {
	dir        string
	free, keep int64
}

func (e *inodesUsed) Error() string {
	return fmt.Sprintf("the disk of %s can hold no more files: %d inodes are free and %d are kept for running pods; remove images or other files", e.dir, e.free, e.keep)
}

func (e *inodesUsed) Is(target error) bool { return target == syscall.ENOSPC }

const (
	// guardStep and guardFiles are how many bytes and files pass between two looks
	// at the disk.
	guardStep  = 8 << 20
	guardFiles = 256
	// reserveInodes is what an import or a pull leaves free of inodes; of a small
	// file system one in reserveShare.
	reserveInodes = 4096
	reserveShare  = 20
)

// room fails unless the file system of dir has room for that much, beside what is
// kept for running pods.
func room(dir string, bytes, inodes int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); bytes < 0 || free-reserve < bytes {
		return &diskFull{dir: dir, free: free}
	}
	keep := min(int64(st.Files)/reserveShare, reserveInodes)
	if free := int64(st.Ffree); st.Files > 0 && free-keep < inodes { // some make inodes as they need them
		return &inodesUsed{dir: dir, free: free, keep: keep}
	}
	return nil
}

// freeBytes is how much there is free on the file system of dir; 0: unknown.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// guard ends a stream that is written to dir with an error before the file
// system of dir is full. That bounds decompression bombs too.
type guard struct {
	io.Reader
	dir  string
	left int64 // bytes until the next look
	// wrote counts what was read, and so is written. Nil: nobody asks.
	wrote *atomic.Uint64
}

func newGuard(r io.Reader, dir string) *guard { return &guard{Reader: r, dir: dir} }

// counting is newGuard of what counts as written by the Service.
func (s *Service) counting(r io.Reader) *guard {
	return &guard{Reader: r, dir: s.c.Root, wrote: &s.wrote}
}

// Wrote is how many bytes pulls and imports have written since this process started:
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

// filesGuard ends the unpacking of a layer before the file system of dir is full
// of what the stream does not show: a sparse file is a few bytes in the stream and
// as many on disk as its header says, and a file without content takes an inode,
// with one for each directory in its name. Layers are unpacked side by side, so
// promised is what all of them are about to write.
type filesGuard struct {
	dir      string
	promised *atomic.Int64
	own      int64 // of promised
	files    int64 // since the last look
	small    int64 // bytes of them
}

// next is called before each file, with its header; containerd's archive.Filter.
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

// done takes back what was promised for a file, which is written.
func (g *filesGuard) done() {
	g.promised.Add(-g.own)
	g.own = 0
}
