package medium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	format "github.com/islet-edge/islet/internal/bundle"
)

const (
	// answerTime is the maximum duration of a request. The kernel repeats a failed read of a USB stick for up to half a minute.
	answerTime = time.Minute
	// endTime is the time in which the helper must end after its last request, and killTime after it was killed.
	endTime  = 5 * time.Second
	killTime = time.Second
	// minRate is the minimum average rate of a file, in bytes per second. A file may take longer by twice the answerTime.
	minRate = 16 << 10
)

// errSlow means that the helper needs too much time for a file.
var errSlow = fmt.Errorf("the medium is slower than %d KiB per second: it may be defective", minRate>>10)

// isSlow reports whether reads of a file have taken too long.
func isSlow(bytes int64, took, answerTime time.Duration) bool {
	return took > 2*answerTime+time.Duration(bytes/minRate)*time.Second
}

// errSilent means that the helper did not answer in time.
var errSilent = errors.New("the medium does not answer: pull it out; it may be defective")

// A session is a running helper. Its methods may be called concurrently.
type session struct {
	answerTime time.Duration
	process    *exec.Cmd
	ended      chan struct{} // closed when the process has ended
	stop       func() bool

	mu     sync.Mutex // held during a request
	in     *os.File
	out    *os.File
	lines  *bufio.Reader
	broken error // the session cannot be used any more
}

// startSession starts a helper, which is killed when ctx ends.
func startSession(ctx context.Context, answerTime time.Duration) (*session, error) {
	inHelper, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, outHelper, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), inHelper.Close())
	}
	s := &session{answerTime: answerTime, process: exec.Command("/proc/self/exe"), ended: make(chan struct{}), in: in, out: out,
		lines: bufio.NewReaderSize(out, maxHead)}
	s.process.Args = []string{Program}
	s.process.Env = []string{} // an upgrade or a test may have set variables that are not for the helper
	s.process.Dir, s.process.Stdin, s.process.Stdout = "/", inHelper, outHelper
	err = s.process.Start()
	if err = errors.Join(err, inHelper.Close(), outHelper.Close()); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go func() {
		_ = s.process.Wait() // it may not end before the kernel gives up the device
		close(s.ended)
	}()
	s.stop = context.AfterFunc(ctx, s.kill)
	return s, nil
}

// kill ends the helper, unless it hangs in the kernel. A request that is waiting fails.
func (s *session) kill() {
	_ = s.process.Process.Kill()
	_, _ = s.in.Close(), s.out.Close()
}

// close ends the session, unless it is nil or has ended. It waits at most for the endTime and the killTime. If the agent ends, it waits
// only for the killTime. A helper that hangs in the kernel then remains until the kernel gives up the device.
func (s *session) close() {
	if s == nil {
		return
	}
	if s.stop() {
		_ = s.in.Close()
		s.await(endTime)
	}
	s.kill()
	s.await(killTime)
}

// await waits for the end of the helper.
func (s *session) await(limit time.Duration) {
	select {
	case <-s.ended:
	case <-time.After(limit):
	}
}

// do sends a request. It reads the data of the response into buffer. After an error of the helper, the response is valid.
func (s *session) do(q request, buffer []byte) (a response, data []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return a, nil, s.broken
	}
	if a, data, err = s.exchange(q, buffer); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errSilent
		}
		s.broken = err
		s.kill()
		return response{}, nil, err
	}
	if a.Error != "" {
		return a, nil, &helperError{a.Error, a.Number}
	}
	return a, data, nil
}

func (s *session) exchange(q request, buffer []byte) (a response, data []byte, err error) {
	line, err := json.Marshal(q)
	if err != nil {
		return a, nil, err
	}
	end := time.Now().Add(s.answerTime)
	if err := errors.Join(s.in.SetWriteDeadline(end), s.out.SetReadDeadline(end)); err != nil {
		return a, nil, err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return a, nil, err
	}
	if line, err = s.lines.ReadSlice('\n'); err != nil {
		return a, nil, fmt.Errorf("the helper that reads the medium has ended: %w", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, nil, err
	}
	if a.Bytes < 0 || a.Bytes > len(buffer) {
		return a, nil, errors.New("the helper that reads the medium has sent too much")
	}
	_, err = io.ReadFull(s.lines, buffer[:a.Bytes])
	return a, buffer[:a.Bytes], err
}

// A helperError is an error that happened in the helper.
type helperError struct {
	text   string
	number syscall.Errno // or 0
}

func (e *helperError) Error() string { return e.text }

func (e *helperError) Unwrap() error {
	if e.number == 0 {
		return nil
	}
	return e.number
}

// openLayout opens a bundle of the mounted medium.
func (s *session) openLayout(name string) (format.Layout, error) {
	a, _, err := s.do(request{Do: "layout", Name: name}, nil)
	if err != nil {
		return nil, err
	}
	return &layout{s, a.ID}, nil
}

// A layout is a bundle that the helper reads.
type layout struct {
	*session
	id int
}

func (l *layout) Open(name string) (io.ReadCloser, int64, error) {
	a, _, err := l.do(request{Do: "open", ID: l.id, Name: name}, nil)
	if err != nil {
		return nil, 0, err
	}
	return &file{session: l.session, id: a.ID}, a.Size, nil
}

func (l *layout) Close() error { return l.closeOne(l.id) }

func (s *session) closeOne(id int) error {
	_, _, err := s.do(request{Do: "close", ID: id}, nil)
	return err
}

// A file is a file of a layout, read in chunks.
type file struct {
	*session
	id     int
	buffer []byte
	rest   []byte // of the last chunk
	end    bool

	bytes int64         // read so far
	took  time.Duration // the duration of the reads
}

func (f *file) Read(b []byte) (int, error) {
	if len(f.rest) == 0 && !f.end {
		if f.buffer == nil {
			f.buffer = make([]byte, maxChunk)
		}
		began := time.Now()
		_, data, err := f.do(request{Do: "read", ID: f.id}, f.buffer)
		if err != nil {
			return 0, err
		}
		f.bytes, f.took = f.bytes+int64(len(data)), f.took+time.Since(began)
		if isSlow(f.bytes, f.took, f.answerTime) {
			return 0, errSlow
		}
		f.rest, f.end = data, len(data) < maxChunk
	}
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *file) Close() error { return f.closeOne(f.id) }
