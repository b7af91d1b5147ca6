package image

import (
	"fmt"
	"io"
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

// guardStep is how many bytes pass between two looks at the disk.
const guardStep = 8 << 20

// guard ends a stream that is written to dir with an error before the file
// system of dir is full. That bounds decompression bombs too.
type guard struct {
	io.Reader
	dir  string
	left int64 // bytes until the next look
}

func newGuard(r io.Reader, dir string) *guard { return &guard{Reader: r, dir: dir} }

func (g *guard) Read(p []byte) (int, error) {
	if g.left <= 0 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(g.dir, &st); err != nil {
			return 0, fmt.Errorf("free space of %s: %w", g.dir, err)
		}
		if free := int64(st.Bavail) * int64(st.Bsize); free < reserve {
			return 0, &diskFull{dir: g.dir, free: free}
		}
		g.left = guardStep
	}
	n, err := g.Reader.Read(p)
	g.left -= int64(n)
	return n, err
}
