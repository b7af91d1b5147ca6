package shim

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/islet-edge/islet/runtime/drain"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// ErrNoReason is returned if a shim of an older version closed an attached connection. Older shims
// do not report whether the output of the container has ended or the reader was too slow.
var ErrNoReason = errors.New("the shim closed the connection without a reason")

// Attach connects streams to a container until ctx or the container's output ends. A nil stream is
// not connected. The end of stdin is forwarded. It returns an error if output was not delivered.
func (c *Client) Attach(
	ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, resize <-chan Size,
) error {
	return c.attachStreams(ctx, id, stdin, stdout, stderr, func(out *frameWriter, done <-chan struct{}) { out.forwardSizes(resize, done) })
}

// AttachHeld is like Attach, but for a container that another program runs. That program also resizes the terminal. As soon as output is
// forwarded, the caller's function is called in a goroutine.
func (c *Client) AttachHeld(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, attached func()) error {
	return c.attachStreams(ctx, id, stdin, stdout, stderr, func(*frameWriter, <-chan struct{}) { attached() })
}

func (c *Client) attachStreams(
	ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, attached func(*frameWriter, <-chan struct{}),
) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return fmt.Errorf("connect to shim: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in, sendsEnd, err := requestStreams(conn, wire.AttachRequest{
		ID: id, Stdin: stdin != nil, Stdout: stdout != nil, Stderr: stderr != nil, End: true,
	})
	if err != nil {
		return err
	}
	out := &frameWriter{w: conn}
	done := make(chan struct{})
	defer close(done)
	go attached(out, done)
	if stdin != nil {
		go out.forwardStdin(stdin)
	}
	err = forwardOutput(in, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.Is(err, errHungUp):
		return err
	case sendsEnd:
		return fmt.Errorf("output may be missing: %w", ErrGone)
	case out.ended.Load(): // a shim without StreamEnd closes the connection when stdin ends
		return nil
	}
	return ErrNoReason
}

// frameWriter serializes the writes of several goroutines, so that each frame is written as a whole.
type frameWriter struct {
	mu    sync.Mutex
	w     io.Writer
	ended atomic.Bool // whether stdin has ended
}

func (f *frameWriter) write(stream byte, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.WriteFrame(f.w, stream, p)
}

func (f *frameWriter) forwardSizes(sizes <-chan Size, done <-chan struct{}) {
	for {
		select {
		case s, ok := <-sizes:
			if !ok {
				return
			}
			p := binary.BigEndian.AppendUint16(nil, s.Width)
			f.write(wire.StreamResize, binary.BigEndian.AppendUint16(p, s.Height))
		case <-done:
			return
		}
	}
}

// forwardStdin forwards stdin. It marks the end of stdin with an empty frame.
func (f *frameWriter) forwardStdin(stdin io.Reader) {
	buf := make([]byte, wire.MaxFrame)
	for {
		n, err := stdin.Read(buf)
		if n > 0 && f.write(wire.StreamStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			f.ended.Store(true)
			f.write(wire.StreamStdin, nil)
			return
		}
	}
}

// requestStreams requests the streams. It also reports whether the shim sends StreamEnd as the last frame.
func requestStreams(conn net.Conn, r wire.AttachRequest) (in *bufio.Reader, sendsEnd bool, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, false, err
	}
	if err := json.NewEncoder(conn).Encode(wire.Request{ID: 1, Method: wire.MethodAttach, Body: body}); err != nil {
		return nil, false, ErrGone
	}
	in = bufio.NewReader(conn)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, false, ErrGone
	}
	var reply wire.Reply
	if err := json.Unmarshal(line, &reply); err != nil {
		return nil, false, err
	}
	var a wire.Attached
	if len(reply.Body) > 0 {
		if err := json.Unmarshal(reply.Body, &a); err != nil {
			return nil, false, err
		}
	}
	return in, a.End, replyError(reply)
}

var errHungUp = errors.New("the shim closed the connection")

// forwardOutput forwards output until the shim reports the end of the output or closes the connection.
func forwardOutput(in io.Reader, stdout, stderr io.Writer) error {
	buf := make([]byte, wire.MaxFrame)
	for {
		stream, p, err := wire.ReadFrame(in, buf)
		if err != nil {
			return errHungUp
		}
		w := stdout
		switch stream {
		case wire.StreamStderr:
			w = stderr
		case wire.StreamEnd:
			if len(p) > 0 {
				return errors.New(string(p))
			}
			return nil
		}
		if w == nil {
			continue
		}
		if n, err := w.Write(p); err != nil {
			return &drain.LostError{Bytes: int64(len(p) - n), Err: err}
		}
	}
}
