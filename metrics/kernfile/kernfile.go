package kernfile

import (
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initialSize is the initial size of a Buffer. Nearly all files of the kernel are smaller.
const initialSize = 16 << 10

// minPart is used to detect the end of a file: if a first read returns fewer bytes, the file has no more data. The reason is that the
// kernel fills each page of a file, except the last page, with as many complete lines as possible.
const minPart = 3 << 10

// maxKept is the maximum size of a Buffer that is reused.
const maxKept = 256 << 10

// ErrLong is the error for a file with more bytes than the limit of the read.
var ErrLong = errors.New("longer than expected")

// A Buffer is memory for the content of files, one at a time. It is not safe for concurrent use.
type Buffer struct {
	b    []byte
	name []byte // the zero-terminated path for the kernel
}

var buffers = sync.Pool{New: func() any { return &Buffer{b: make([]byte, initialSize)} }}

// Get returns a Buffer. The caller must return it with Put.
func Get() *Buffer { return buffers.Get().(*Buffer) }

// Put releases the Buffer for reuse. Texts that were read into it become invalid.
func (b *Buffer) Put() {
	if len(b.b) < maxKept {
		buffers.Put(b)
	}
}

// Memory returns the memory of the Buffer, which has at least 16 KiB. The caller may use this memory for other purposes.
func (b *Buffer) Memory() []byte { return b.b }

// Open opens a file for reading. The path is the concatenation of all given strings. It is relative to the open directory dirfd, or to the
// current directory if dirfd is unix.AT_FDCWD. Open does not follow a symbolic link in the last component. All errors have the type
// unix.Errno.
func (b *Buffer) Open(dirfd int, name ...string) (fd int, err error) {
	b.name = b.name[:0]
	for _, part := range name {
		b.name = append(b.name, part...)
	}
	b.name = append(b.name, 0)
	for {
		fd, _, err := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(&b.name[0])),
			unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, 0, 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return -1, err
		}
		return int(fd), nil
	}
}

// Read reads an open file, up to the given limit in bytes. The text is valid until the next read. The error is ErrLong, or has the type
// unix.Errno. After an error, Read also returns the bytes that it could read.
func (b *Buffer) Read(fd, limit int) ([]byte, error) {
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
		case n < len(b.b): // a short first read has returned the whole file; an empty read means the end of the file
			if more == 0 || n < minPart {
				return b.b[:min(n, limit)], tooLong(n, limit)
			}
		case n >= limit:
			return b.b[:limit], ErrLong
		default:
			b.b = append(b.b, make([]byte, len(b.b))...)
		}
	}
}

func tooLong(n, limit int) error {
	if n > limit {
		return ErrLong
	}
	return nil
}

// File opens a file, reads up to the given number of bytes, and closes the file. The path is the concatenation of all given strings.
func (b *Buffer) File(limit int, name ...string) ([]byte, error) {
	fd, err := b.Open(unix.AT_FDCWD, name...)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return b.Read(fd, limit)
}

// StringView returns a string that shares the memory of the given bytes. The caller must not change the bytes while the string is in use.
func StringView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
