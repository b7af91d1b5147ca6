package kernfile

import (
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roomy is how much a new Buffer has room for: more than nearly all such files have.
const roomy = 16 << 10

// seqFile is less than what one read gives of a longer file: the kernel fills a page with
// whole lines. What is shorter is the whole.
const seqFile = 3 << 10

// maxKept bounds what a Buffer that was used for a long file keeps.
const maxKept = 256 << 10

// ErrLong is of a file that has more than it was read for.
var ErrLong = errors.New("longer than expected")

// A Buffer is what files are read into, one after another. It is for one goroutine.
type Buffer struct {
	b    []byte
	name []byte // of a file, as the kernel takes it
}

var buffers = sync.Pool{New: func() any { return &Buffer{b: make([]byte, roomy)} }}

// Get gives a Buffer, for Put.
func Get() *Buffer { return buffers.Get().(*Buffer) }

// Put takes it back; nothing that was read is valid any more.
func (b *Buffer) Put() {
	if len(b.b) < maxKept {
		buffers.Put(b)
	}
}

// Memory is all that the Buffer has, 16 KiB or more, for what is no file.
func (b *Buffer) Memory() []byte { return b.b }

// Open opens a file for reading, of which name has the parts, below a directory: unix.AT_FDCWD for
// a whole path. It follows no symbolic link at the end of it. An error is a unix.Errno.
func (b *Buffer) Open(at int, name ...string) (fd int, err error) {
	b.name = b.name[:0]
	for _, part := range name {
		b.name = append(b.name, part...)
	}
	b.name = append(b.name, 0)
	for {
		fd, _, err := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&b.name[0])), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, 0, 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return -1, err
		}
		return int(fd), nil
	}
}

// Read reads an open file of up to most bytes, into text that is valid until the next. With an
// error, ErrLong or a unix.Errno, it is what was read before.
func (b *Buffer) Read(fd, most int) ([]byte, error) {
	n := 0
	for {
		more, err := unix.Read(fd, b.b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return b.b[:n], err
		}
		n += more
		switch {
		case n < len(b.b): // the kernel gives all it has of such a file, or there is no more
			if more == 0 || n < seqFile {
				return b.b[:min(n, most)], tooLong(n, most)
			}
		case n >= most:
			return b.b[:most], ErrLong
		default:
			b.b = append(b.b, make([]byte, len(b.b))...)
		}
	}
}

func tooLong(n, most int) error {
	if n > most {
		return ErrLong
	}
	return nil
}

// File is Open of a whole path and Read.
func (b *Buffer) File(most int, name ...string) ([]byte, error) {
	fd, err := b.Open(unix.AT_FDCWD, name...)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return b.Read(fd, most)
}

// View is a string of bytes that nobody changes while it is used.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
