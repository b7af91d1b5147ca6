package logs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// openTail finds the last n lines of the log. It opens the file that contains the first of these lines, and moves
// to this line. It returns nil if there is no file. It reads uncompressed files backwards, and only as far as
// necessary. With o.Within, it may move to the middle of a line.
func (s logFiles) openTail(n int64, o Options) (*file, error) {
	first, older, err := s.openNewest()
	if err != nil {
		return first, err
	}
	for f := first; ; {
		if f != nil {
			lines, err := f.seekTail(n, o)
			if n -= lines; n <= 0 || err != nil {
				return f, err
			}
		}
		if len(older) == 0 || o.Within > 0 {
			return first, nil
		}
		f, err = s.open(older[len(older)-1])
		older = older[:len(older)-1]
		if errors.Is(err, fs.ErrNotExist) {
			f = nil // it was deleted after it was listed
			continue
		}
		if err != nil {
			return first, err
		}
		first.close()
		first = f
	}
}

// seekTail moves f to the first of its last n lines, or to its start if it has fewer. It returns the number of lines from
// there.
func (f *file) seekTail(n int64, o Options) (int64, error) {
	if f.plain {
		size := f.size
		if !f.newest {
			info, err := f.f.Stat()
			if err != nil {
				return 0, err
			}
			size = info.Size()
		}
		at, lines, err := lastLines(f.f, size, n, o, f.newest)
		if err != nil {
			return 0, err
		}
		_, err = f.f.Seek(at, io.SeekStart)
		return lines, err
	}
	var lines int64
	for {
		e, err := f.next()
		if err != nil {
			break
		}
		if o.endsLine(e) {
			lines++
		}
	}
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	if err := f.rewind(); err != nil {
		return 0, err
	}
	for skip := lines - n; skip > 0; {
		e, err := f.next()
		if err != nil {
			return 0, err
		}
		if o.endsLine(e) {
			skip--
		}
	}
	return min(lines, n), nil
}

// endsLine reports whether an entry is the last one of its line, and the stream of the line is
// printed.
func (o Options) endsLine(e entry) bool {
	return !e.partial && (o.Stream == "" || e.stderr == (o.Stream == Stderr))
}

// lastLines finds the last lines of an uncompressed file, at most n. It returns the offset of the first of these lines,
// and the number of these lines. In the newest file an unfinished last line counts as a line.
func lastLines(f *os.File, size, n int64, o Options, newest bool) (at, lines int64, err error) {
	if n == 0 {
		return size, 0, nil
	}
	search := int64(maxSearch)
	if o.Within > 0 {
		search = min(search, o.Within)
	}
	back := backwardReader{f: f, buf: make([]byte, maxLine), floor: max(0, size-search)}
	met := map[bool]bool{} // whether a later piece of the stream was seen, by entry.stderr
	for end := size; end > back.floor; {
		newline, err := back.newlineBefore(end - 1) // the newline at end-1 belongs to this line
		if err != nil {
			return 0, 0, err
		}
		start := newline + 1
		e, ok, err := back.header(start, end)
		if err != nil {
			return 0, 0, err
		}
		if ok && newest && !met[e.stderr] {
			e.partial = false
		}
		if ok {
			met[e.stderr] = true
		}
		if ok && o.endsLine(e) {
			if lines == n {
				return end, lines, nil
			}
			lines++
		}
		end = start
	}
	return back.floor, lines, nil
}

// maxSearch is the maximum number of bytes in which the last lines, or the next one, are searched. A file without newlines can be larger
// than the disk, because its holes use no space.
const maxSearch = 256 << 20

// backwardReader reads a file from its end in blocks.
type backwardReader struct {
	f     io.ReaderAt
	buf   []byte
	base  int64 // offset of buf in the file
	n     int64 // valid bytes in buf
	floor int64 // lower bound of the search
}

// newlineBefore returns the offset of the last newline before pos. It does not search below the offset floor. If it
// finds no newline, it returns floor-1.
func (b *backwardReader) newlineBefore(pos int64) (int64, error) {
	for pos > b.floor {
		if pos <= b.base || pos > b.base+b.n {
			b.base = max(b.floor, pos-int64(len(b.buf)))
			b.n = pos - b.base
			if _, err := b.f.ReadAt(b.buf[:b.n], b.base); err != nil {
				return 0, err
			}
		}
		if i := bytes.LastIndexByte(b.buf[:pos-b.base], '\n'); i >= 0 {
			return b.base + int64(i), nil
		}
		pos = b.base
	}
	return b.floor - 1, nil
}

// maxHeader is the maximum length of the beginning of a line: its time, stream and tag.
const maxHeader = 128

// header parses the beginning of the line between the offsets start and end.
func (b *backwardReader) header(start, end int64) (entry, bool, error) {
	n := min(end-start, maxHeader)
	var space [maxHeader]byte
	line := space[:n]
	if start >= b.base && start+n <= b.base+b.n {
		line = b.buf[start-b.base:][:n]
	} else if _, err := b.f.ReadAt(line, start); err != nil {
		return entry{}, false, err
	}
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	e, ok := parseLine(line)
	return e, ok, nil
}
