package shim

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// Attach connects streams to a container until its output ends or ctx does. A
// nil stream is not connected; the end of stdin is passed on.
func (c *Client) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, resize <-chan Size) error {
	return c.attach(ctx, id, stdin, stdout, stderr, func(out *frames, done <-chan struct{}) { out.resize(resize, done) })
}

// AttachHeld is Attach for a container that another program runs, which has its
// terminal. attached is called, in a goroutine, as soon as output is passed on.
func (c *Client) AttachHeld(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, attached func()) error {
	return c.attach(ctx, id, stdin, stdout, stderr, func(*frames, <-chan struct{}) { attached() })
}

func (c *Client) attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, attached func(*frames, <-chan struct{})) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return fmt.Errorf("connect to shim: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in, err := handshake(conn, wire.AttachRequest{ID: id, Stdin: stdin != nil, Stdout: stdout != nil, Stderr: stderr != nil})
	if err != nil {
		return err
	}
	out := &frames{w: conn}
	done := make(chan struct{})
	defer close(done)
	go attached(out, done)
	if stdin != nil {
		go out.input(stdin)
	}
	return receive(ctx, in, stdout, stderr)
}

// frames writes frames, one at a time.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) write(stream byte, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.WriteFrame(f.w, stream, p)
}

func (f *frames) resize(sizes <-chan Size, done <-chan struct{}) {
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

// input moves stdin until its end, which is an empty frame.
func (f *frames) input(stdin io.Reader) {
	buf := make([]byte, wire.MaxFrame)
	for {
		n, err := stdin.Read(buf)
		if n > 0 && f.write(wire.StreamStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			f.write(wire.StreamStdin, nil)
			return
		}
	}
}

func handshake(conn net.Conn, r wire.AttachRequest) (*bufio.Reader, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(conn).Encode(wire.Request{ID: 1, Method: wire.MethodAttach, Body: body}); err != nil {
		return nil, ErrGone
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, ErrGone
	}
	var reply wire.Reply
	if err := json.Unmarshal(line, &reply); err != nil {
		return nil, err
	}
	return in, replyError(reply)
}

func receive(ctx context.Context, in io.Reader, stdout, stderr io.Writer) error {
	buf := make([]byte, wire.MaxFrame)
	for {
		stream, p, err := wire.ReadFrame(in, buf)
		if err != nil {
			return ctx.Err() // the container's output has ended, or the caller did
		}
		w := stdout
		if stream == wire.StreamStderr {
			w = stderr
		}
		if w == nil {
			continue
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
}
