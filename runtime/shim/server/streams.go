package server

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/crilog"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// streams are a container's stdin, stdout and stderr: pipes, or a terminal. Their
// output goes to the log and to whoever is attached.
type streams struct {
	childStdin, childStdout, childStderr *os.File // ends for the OCI runtime

	console *console // nil without a terminal
	stdin   *os.File // nil: nothing can be written
	outs    []*output
	pumps   sync.WaitGroup

	mu      sync.Mutex
	clients map[*client]struct{}
	over    bool // the container's output has ended
}

// An output is one stream on its way to the log and to clients.
type output struct {
	stream byte // of wire
	file   *os.File
	log    *crilog.Stream // nil: no log
}

// buffers are shared by all pumps: one that waits for output holds none.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// newStreams opens what the OCI runtime gets. After an error nothing is open.
func newStreams(c *container) (_ *streams, err error) {
	s := &streams{clients: map[*client]struct{}{}}
	defer func() {
		if err != nil {
			s.abort()
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s.childStdin, s.childStdout, s.childStderr = null, null, null
	defer func() {
		if err == nil && c.req.Owner != nil {
			err = s.give(*c.req.Owner)
		}
	}()
	if c.req.Terminal {
		s.console, err = listenConsole(c.req.Bundle)
		return s, err
	}
	if s.childStdout, err = s.addOutput(c.log, wire.StreamStdout, "stdout"); err != nil {
		return nil, err
	}
	if s.childStderr, err = s.addOutput(c.log, wire.StreamStderr, "stderr"); err != nil {
		return nil, err
	}
	if c.req.Stdin {
		if s.childStdin, s.stdin, err = pipe(1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// give makes the container's ends of pipes the property of its root, who is not the
// host's. The other ends are the same to the kernel.
func (s *streams) give(to wire.Owner) error {
	for _, f := range []*os.File{s.childStdin, s.childStdout, s.childStderr} {
		if f.Name() != "pipe" {
			continue // /dev/null is everybody's
		}
		if err := f.Chown(int(to.UID), int(to.GID)); err != nil {
			return fmt.Errorf("give the container its streams: %w", err)
		}
	}
	return nil
}

func (s *streams) addOutput(l *crilog.Log, stream byte, name string) (child *os.File, err error) {
	r, w, err := pipe(0)
	if err != nil {
		return nil, err
	}
	o := &output{stream: stream, file: r}
	if l != nil {
		o.log = l.Stream(name)
	}
	s.outs = append(s.outs, o)
	return w, nil
}

// pipe makes a pipe one end of which, the reading 0 or the writing 1, is ours and
// does not block; the other is a container's.
func pipe(ours int) (r, w *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := unix.SetNonblock(p[ours], true); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// closeChild closes the ends that the OCI runtime has got.
func (s *streams) closeChild() {
	for _, f := range []*os.File{s.childStdin, s.childStdout, s.childStderr} {
		if f != nil {
			f.Close() // one file may stand for several: closing again does no harm
		}
	}
}

// receive takes the terminal, if there is one, from the OCI runtime. Its output goes to
// the log as stdout; l may be nil.
func (s *streams) receive(l *crilog.Log) error {
	if s.console == nil {
		return nil
	}
	tty, err := s.console.accept()
	if err != nil {
		return fmt.Errorf("receive the container's terminal: %w", err)
	}
	s.stdin = tty
	o := &output{stream: wire.StreamStdout, file: tty}
	if l != nil {
		o.log = l.Terminal("stdout")
	}
	s.outs = []*output{o}
	return nil
}

// abort closes everything after a failed start.
func (s *streams) abort() {
	s.closeChild()
	for _, o := range s.outs {
		o.file.Close()
	}
	if s.stdin != nil {
		s.stdin.Close()
	}
	if s.console != nil {
		s.console.close()
	}
}

// pump starts to move output.
func (s *streams) pump() {
	for _, o := range s.outs {
		s.pumps.Go(func() { s.copy(o) })
	}
}

// copy moves one stream until it ends. It blocks without a buffer in hand.
func (s *streams) copy(o *output) {
	defer func() {
		if o.log != nil {
			o.log.Close()
		}
	}()
	raw, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	for {
		var buf *[]byte
		var n int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			buf = buffers.Get().(*[]byte)
			n, readErr = unix.Read(int(fd), *buf)
			if readErr == unix.EAGAIN {
				buffers.Put(buf)
				return false
			}
			return true
		})
		if err != nil {
			return // closed
		}
		if n > 0 {
			if o.log != nil {
				o.log.Write((*buf)[:n]) // a full disk must not stop the container
			}
			s.broadcast(o.stream, (*buf)[:n])
		}
		buffers.Put(buf)
		if readErr == unix.EINTR {
			continue
		}
		if n <= 0 || readErr != nil { // a terminal says EIO at its end
			return
		}
	}
}

// finish waits until all output is moved, at most for d, and closes everything.
func (s *streams) finish(d time.Duration) {
	done := make(chan struct{})
	go func() { s.pumps.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(d):
	}
	for _, o := range s.outs {
		o.file.Close() // wakes its pump
	}
	<-done
	if s.stdin != nil {
		s.stdin.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.clients {
		c.conn.Close()
	}
}

// A console is a unix socket on which the OCI runtime hands over a terminal.
type console struct {
	path string
	dir  *os.File
	l    io.Closer
	take func() (*os.File, error)
}

func (c *console) accept() (*os.File, error) { defer c.close(); return c.take() }

func (c *console) close() {
	c.l.Close()
	c.dir.Close()
	os.Remove(filepath.Join(c.dir.Name(), consoleName))
}
