package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// inputPause is how long a write to a container's stdin may take before the shim watches the client's connection.
	inputPause = 100 * time.Millisecond
	// inputGrace is how long a container may take to read input whose client has closed the connection. The rest is discarded.
	inputGrace = 10 * time.Second
)

// An input is the stdin of a container. Attached clients write to it one at a time.
//
//	client --frames--> write --> pipe or terminal --> container
//	   '--closed--> inputWatch --deadline--^
type input struct {
	file  *os.File      // nil if the container has no stdin
	turn  chan struct{} // capacity 1; has a value while a client writes
	grace time.Duration
}

func newInput() input { return input{turn: make(chan struct{}, 1), grace: inputGrace} }

// write writes a client's input. While the container does not read it, write also waits for the end of the client's connection. It returns
// false if the connection has ended and the input was not written within the grace.
func (i *input) write(client net.Conn, p []byte) bool {
	select {
	case i.turn <- struct{}{}:
		i.file.SetWriteDeadline(time.Now().Add(inputPause))
		n, err := i.file.Write(p)
		<-i.turn
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return true // another error means that the container has closed its stdin
		}
		p = p[n:]
	default:
	}
	w := watchInput(client, i.grace)
	if w == nil { // the connection cannot be watched
		i.turn <- struct{}{}
		i.file.SetWriteDeadline(time.Time{})
		i.file.Write(p)
		<-i.turn
		return true
	}
	defer w.stop()
	select {
	case i.turn <- struct{}{}:
	case <-w.expired:
		return false
	}
	defer func() { <-i.turn }()
	return w.write(i.file, p)
}

// An inputWatch waits for the end of a client's connection while the client's input cannot be written.
type inputWatch struct {
	conn    net.Conn
	grace   time.Duration
	ended   chan struct{} // closed when the goroutine has ended
	expired chan struct{} // closed grace after the connection has ended

	mu     sync.Mutex
	gone   time.Time // when the connection has ended
	timer  *time.Timer
	writes *os.File // file that the client writes to, or nil
}

// watchInput starts to watch a connection. No other goroutine may read from the connection until stop is called. It returns nil if the
// connection has no file descriptor.
func watchInput(client net.Conn, grace time.Duration) *inputWatch {
	sc, ok := client.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &inputWatch{conn: client, grace: grace, ended: make(chan struct{}), expired: make(chan struct{})}
	go func() {
		defer close(w.ended)
		// The function is called again when data arrives or the connection ends. It does not read the data.
		if raw.Read(hasHungUp) == nil {
			w.setGone()
		}
	}()
	return w
}

// hasHungUp reports whether the other end of a connection is closed, even if data was not read yet.
func hasHungUp(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(poll, 0)
		if err != unix.EINTR {
			return err != nil || n > 0
		}
	}
}

func (w *inputWatch) setGone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = time.Now()
	w.timer = time.AfterFunc(w.grace, func() { close(w.expired) })
	if w.writes != nil {
		w.writes.SetWriteDeadline(w.gone.Add(w.grace))
	}
}

// write writes to a file until the client is gone and the grace has passed. It returns false in this case. Otherwise it returns true, also
// if the container has closed its stdin.
func (w *inputWatch) write(f *os.File, p []byte) bool {
	w.mu.Lock()
	deadline := time.Time{}
	if !w.gone.IsZero() {
		deadline = w.gone.Add(w.grace)
	}
	f.SetWriteDeadline(deadline)
	w.writes = f
	w.mu.Unlock()
	_, err := f.Write(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = nil
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// stop ends the goroutine.
func (w *inputWatch) stop() {
	w.conn.SetReadDeadline(time.Unix(1, 0))
	<-w.ended
	w.conn.SetReadDeadline(time.Time{})
	if w.timer != nil {
		w.timer.Stop()
	}
}
