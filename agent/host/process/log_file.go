package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	maxLogFile  = 16 << 20 // bytes
	keepLogFile = 4 << 20  // bytes that remain when a file is shortened
	copyBytes   = 64 << 10 // bytes that are copied at once
)

// A logFile is a file to which a service manager such as OpenRC appends the output of the agent. No program rotates such a file, so the
// agent limits its size itself: a file of more than maxLogFile bytes is shortened to its last keepLogFile bytes. The inode stays, because
// the service manager and other processes have it open.
type logFile struct {
	mu *sync.Mutex // shared by the streams of the process, because both may be the same file
	f  *os.File
}

// LimitLogs returns writers to the given streams of the process. If a stream is a regular file that is opened for appending, the writer
// limits the size of the file. Any other stream is returned as it is. A file that is too large is shortened at once, because an agent that
// ends before it logs anything may be started again and again.
func LimitLogs(out, errors io.Writer) (io.Writer, io.Writer) {
	mu := &sync.Mutex{}
	return limitLog(out, mu), limitLog(errors, mu)
}

func limitLog(w io.Writer, mu *sync.Mutex) io.Writer {
	f, ok := w.(*os.File)
	if !ok {
		return w
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return w
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_APPEND == 0 {
		return w
	}
	l := &logFile{mu: mu, f: f}
	mu.Lock()
	defer mu.Unlock()
	l.shorten()
	return l
}

// Write implements io.Writer. If the file cannot be shortened, Write returns no error, and the next call tries again.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.f.Write(line)
	l.shorten()
	return n, err
}

// shorten shortens a file that is too large. If the end of the file cannot be kept, the file becomes empty: a full disk would evict pods.
// Another process of islet may append to the same file, such as the process that supervises an update. A lock on the file makes one of them
// shorten it. The caller holds mu.
func (l *logFile) shorten() {
	st, err := l.f.Stat()
	if err != nil || st.Size() <= maxLogFile {
		return
	}
	// A write to l.f appends, so the file is opened again.
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(l.f.Fd())), os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return
		}
		if st, err = f.Stat(); err == nil && st.Size() <= maxLogFile {
			return
		}
	}
	if err == nil {
		var kept int64
		if kept, err = moveToBegin(f, st.Size()-keepLogFile); err == nil {
			err = f.Truncate(kept)
		}
	}
	if errors.Is(err, io.EOF) { // a program without the lock has shortened it
		return
	}
	if err != nil {
		_ = l.f.Truncate(0)
	}
}

// moveToBegin copies the lines after an offset to the begin of a file, and returns their size. It includes lines that another process
// appends meanwhile, but at most maxLogFile/2 bytes. If the file ends before the offset, the error is io.EOF, and the file is unchanged.
func moveToBegin(f *os.File, from int64) (size int64, err error) {
	buf := make([]byte, copyBytes)
	for first := true; size < maxLogFile/2; first = false {
		n, err := f.ReadAt(buf, from)
		if n == 0 && err == io.EOF && !first {
			break
		}
		if n == 0 {
			return size, err
		}
		from += int64(n)
		part := buf[:n]
		if first {
			part = part[bytes.IndexByte(part, '\n')+1:]
		}
		if _, err := f.WriteAt(part, size); err != nil {
			return size, err
		}
		size += int64(len(part))
	}
	return size, nil
}
