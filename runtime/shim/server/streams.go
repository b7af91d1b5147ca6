package server

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/console"
	"github.com/islet-edge/islet/runtime/drain"
	"github.com/islet-edge/islet/runtime/shim/crilog"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// terminalTimeout is how long to wait for the terminal from an OCI runtime that has ended.
const terminalTimeout = 10 * time.Second

// containerStreams contains the stdin, stdout and stderr of a container: pipes or a terminal. The output is copied to the log and to
// attached clients.
type containerStreams struct {
	childStdin, childStdout, childStderr *os.File // the OCI runtime's ends

	console *console.Socket // nil without a terminal
	stdin   input
	out     drain.Outputs

	mu          sync.Mutex
	clients     map[*client]struct{}
	outputEnded bool          // whether all output of the container has been read
	ended       chan struct{} // closed when the container has ended; clients then no longer block the output
	end         sync.Once
}

func emptyStreams() *containerStreams {
	return &containerStreams{stdin: newInput(), clients: map[*client]struct{}{}, ended: make(chan struct{})}
}

// A streamCopier copies one output stream to the log and to attached clients.
type streamCopier struct {
	streams *containerStreams
	stream  byte           // number of the stream in package wire
	log     *crilog.Stream // nil if there is no log
}

// Write never returns an error: a full disk or a disconnected client must not stop the container.
func (k *streamCopier) Write(p []byte) (int, error) {
	if k.log != nil {
		k.log.Write(p)
	}
	k.streams.sendToClients(k.stream, p)
	return len(p), nil
}

// Ended writes an unfinished last line to the log.
func (k *streamCopier) Ended() {
	if k.log != nil {
		k.log.Close()
	}
}

// newStreams opens the streams of a container. If it fails, it closes all of them.
func newStreams(c *container) (_ *containerStreams, err error) {
	s := emptyStreams()
	defer func() {
		if err != nil {
			s.closeFiles()
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s.childStdin, s.childStdout, s.childStderr = null, null, null
	defer func() {
		if err == nil && c.req.Owner != nil {
			err = s.chown(*c.req.Owner)
		}
	}()
	if c.req.Terminal {
		s.console, err = console.Listen(c.req.Bundle)
		return s, err
	}
	if s.childStdout, err = s.addOutput(c.log, wire.StreamStdout, "stdout"); err != nil {
		return nil, err
	}
	if s.childStderr, err = s.addOutput(c.log, wire.StreamStderr, "stderr"); err != nil {
		return nil, err
	}
	if c.req.Stdin {
		if s.childStdin, s.stdin.file, err = stdinPipe(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// chown changes the owner of the container's pipes to the root user of its user namespace.
func (s *containerStreams) chown(to wire.Owner) error {
	for _, f := range []*os.File{s.childStdin, s.childStdout, s.childStderr} {
		if f.Name() != "pipe" {
			continue // /dev/null
		}
		if err := f.Chown(int(to.UID), int(to.GID)); err != nil {
			return fmt.Errorf("change the owner of the container's streams: %w", err)
		}
	}
	return nil
}

func (s *containerStreams) addOutput(l *crilog.Log, stream byte, name string) (child *os.File, err error) {
	k := &streamCopier{streams: s, stream: stream}
	if l != nil {
		k.log = l.Stream(name)
	}
	return s.out.Pipe(k)
}

// stdinPipe creates a pipe for stdin. The second result is the write end, which is non-blocking.
func stdinPipe() (child, ours *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("create pipe: %w", err)
	}
	if err := unix.SetNonblock(p[1], true); err != nil {
		return nil, nil, fmt.Errorf("create pipe: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// closeChild closes the OCI runtime's ends in this process.
func (s *containerStreams) closeChild() {
	for _, f := range []*os.File{s.childStdin, s.childStdout, s.childStderr} {
		if f != nil {
			f.Close() // two streams may share a file; the second Close fails
		}
	}
}

// receiveTerminal receives the terminal from the OCI runtime. It does nothing if the container has no terminal. The output is
// logged as stdout. The log l may be nil.
func (s *containerStreams) receiveTerminal(l *crilog.Log) error {
	if s.console == nil {
		return nil
	}
	tty, err := s.console.Receive(terminalTimeout)
	if err != nil {
		return fmt.Errorf("receive the container's terminal: %w", err)
	}
	s.stdin.file = tty
	k := &streamCopier{streams: s, stream: wire.StreamStdout}
	if l != nil {
		k.log = l.Terminal("stdout")
	}
	s.out.Add(tty, k)
	return nil
}

// closeFiles closes all files after a failed start.
func (s *containerStreams) closeFiles() {
	s.closeChild()
	s.out.Abort()
	if s.stdin.file != nil {
		s.stdin.file.Close()
	}
	if s.console != nil {
		s.console.Close()
	}
}

// startCopying starts to copy the output.
func (s *containerStreams) startCopying() { s.out.Start() }

// finishOutput waits until all output of an ended container is in the log, and then closes the streams. If other processes keep a stream
// open, it reads their output only for the given time. Attached clients may receive the rest of the output later.
func (s *containerStreams) finishOutput(d time.Duration) {
	s.end.Do(func() { close(s.ended) })
	s.out.Finish(context.Background(), d) // cannot fail, because a sink never fails
	if s.stdin.file != nil {
		s.stdin.file.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outputEnded = true
	for c := range s.clients {
		c.finishOutput()
	}
}
