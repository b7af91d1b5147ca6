package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// An ownLog is what this program itself has to say. It lies in memory, in the run directory,
// and what a container does may be what is said: so lines are few, and old ones go.
type ownLog struct {
	f   *os.File // opened for appending
	now func() time.Time

	mu   sync.Mutex
	left int // lines that may be written at once
	at   time.Time
	lost int // lines since one was written
}

const (
	maxOwnLog  = 64 << 10 // bytes
	keepOwnLog = 16 << 10 // of its end, when it is cut
	burst      = 40       // lines at once
	pause      = 15 * time.Second
	maxOwnLine = 4 << 10 // bytes
)

// Write writes one line, unless there were too many. It always takes it.
func (l *ownLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.at.IsZero() {
		l.left, l.at = burst, now
	}
	if more := int(now.Sub(l.at) / pause); more > 0 {
		l.left = min(l.left+more, burst)
		l.at = l.at.Add(time.Duration(more) * pause)
	}
	if l.left == 0 {
		l.lost++
		return len(line), nil
	}
	l.left--
	if l.lost > 0 {
		fmt.Fprintf(l.f, "time=%s level=WARN msg=\"lines were left out\" lines=%d\n", now.Format(time.RFC3339), l.lost)
		l.lost = 0
	}
	short := line
	if len(line) > maxOwnLine {
		short = append(line[:maxOwnLine-1:maxOwnLine-1], '\n')
	}
	if _, err := l.f.Write(short); err != nil {
		return 0, err
	}
	return len(line), l.cut()
}

// cut leaves only the end of a log that has become too long. What is no file it leaves alone.
func (l *ownLog) cut() error {
	st, err := l.f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() <= maxOwnLog {
		return err
	}
	end := make([]byte, keepOwnLog)
	n := 0
	if f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(l.f.Fd()))); err == nil { // it was opened for writing only
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
