package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// An ownLog is the log of this program. It limits the rate of lines and removes old lines, because
// containers can cause messages and the file is in the run directory, a tmpfs.
type ownLog struct {
	f   *os.File // opened for appending
	now func() time.Time

	mu   sync.Mutex
	left int // number of lines that may be written now
	at   time.Time
	lost int // number of dropped lines since the last one was written
}

const (
	maxOwnLog  = 64 << 10 // bytes
	keepOwnLog = 16 << 10 // bytes that remain when the log is truncated
	burstLines = 40       // number of lines that may be written without a pause
	linePause  = 15 * time.Second
	maxOwnLine = 4 << 10 // bytes
)

// Write writes one line. If the rate limit is exceeded, it drops the line and returns no error.
func (l *ownLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.at.IsZero() {
		l.left, l.at = burstLines, now
	}
	if more := int(now.Sub(l.at) / linePause); more > 0 {
		l.left = min(l.left+more, burstLines)
		l.at = l.at.Add(time.Duration(more) * linePause)
	}
	if l.left == 0 {
		l.lost++
		return len(line), nil
	}
	l.left--
	if l.lost > 0 {
		fmt.Fprintf(l.f, "time=%s level=WARN msg=\"lines were dropped\" lines=%d\n", now.Format(time.RFC3339), l.lost)
		l.lost = 0
	}
	short := line
	if len(line) > maxOwnLine {
		short = append(line[:maxOwnLine-1:maxOwnLine-1], '\n')
	}
	if _, err := l.f.Write(short); err != nil {
		return 0, err
	}
	return len(line), l.truncate()
}

// truncate truncates a log of more than maxOwnLog bytes to its last keepOwnLog bytes. It does nothing if
// the log is not a regular file.
func (l *ownLog) truncate() error {
	st, err := l.f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() <= maxOwnLog {
		return err
	}
	end := make([]byte, keepOwnLog)
	n := 0
	// Reopen the file, because l.f is open only for writing.
	if f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(l.f.Fd()))); err == nil {
		n, err = f.ReadAt(end, st.Size()-keepOwnLog)
		f.Close()
		if err != nil && err != io.EOF {
			n = 0
		}
	}
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err = l.f.Write(end[:n])
	return err
}
