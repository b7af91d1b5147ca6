package frames

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	frame "github.com/moby/spdystream/spdy"
)

// Limits of a control frame. Compressed headers can expand by a factor of a thousand, and they stay
// in memory as long as their stream. A stream of exec or port-forward has three short headers.
const (
	maxControl    = 8 << 10 // length of the frame, in bytes
	maxHeaders    = 16      // number of headers of a stream
	maxHeaderText = 512     // length of a name or a value, in bytes
)

// LimitControlFrames returns a ResponseWriter for the SPDY library. Hijack returns a connection that limits the
// control frames of the client, and records the streams that the client resets.
func LimitControlFrames(w http.ResponseWriter, resets *Resets) http.ResponseWriter {
	return framedWriter{w, resets}
}

type framedWriter struct {
	http.ResponseWriter
	resets *Resets
}

// Hijack implements http.Hijacker.
func (f framedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(f.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	checked := &frameConn{Conn: c, in: rw.Reader, resets: f.resets}
	checked.framer, err = frame.NewFramerWithOptions(io.Discard, &checked.control,
		frame.WithMaxControlFramePayloadSize(maxControl),
		frame.WithMaxHeaderCount(maxHeaders), frame.WithMaxHeaderFieldSize(maxHeaderText))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return checked, bufio.NewReadWriter(bufio.NewReader(checked), rw.Writer), nil
}

// frameConn is the connection of a SPDY session. Read returns a control frame only after it was received completely and decoded within the
// limits. Data frames are not decoded.
type frameConn struct {
	net.Conn
	in           io.Reader
	resets       *Resets
	framer       *frame.Framer // decodes control frames
	control      bytes.Buffer
	partialFrame []byte // bytes of an incomplete frame
	ready        []byte // bytes to return from Read
	data         int    // remaining bytes of the current data frame
}

// frameHead is the length of a frame's header.
const frameHead = 8

// Read returns an error and closes the connection if a control frame exceeds the limits. The error
// is not enough: while the library waits for new streams, it may ignore the error until its idle
// timeout.
func (f *frameConn) Read(b []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.data > 0 {
			n, err := f.in.Read(b[:min(len(b), f.data)])
			f.data -= n
			return n, err
		}
		if err := f.readFrame(); err != nil {
			return 0, err
		}
	}
	n := copy(b, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// readFrame reads the header of a data frame, or a complete control frame. After an error such as an
// exceeded deadline, the next call continues with the same frame.
func (f *frameConn) readFrame() error {
	if err := f.fillTo(frameHead); err != nil {
		return err
	}
	length := int(f.partialFrame[5])<<16 | int(f.partialFrame[6])<<8 | int(f.partialFrame[7])
	if f.partialFrame[0]&0x80 == 0 {
		f.data = length
	} else {
		if length > maxControl {
			return errors.Join(fmt.Errorf("a SPDY control frame has %d bytes, more than %d", length, maxControl), f.Close())
		}
		if err := f.fillTo(frameHead + length); err != nil {
			return err
		}
		f.control.Write(f.partialFrame)
		decoded, err := f.framer.ReadFrame()
		if err != nil {
			return errors.Join(fmt.Errorf("invalid SPDY control frame: %w", err), f.Close())
		}
		if reset, ok := decoded.(*frame.RstStreamFrame); ok {
			f.resets.add(uint32(reset.StreamId))
		}
		f.control.Reset()
	}
	f.ready, f.partialFrame = f.partialFrame, nil
	return nil
}

// fillTo reads until the incomplete frame has n bytes.
func (f *frameConn) fillTo(n int) error {
	for len(f.partialFrame) < n {
		var more [frameHead]byte
		got, err := f.in.Read(more[:min(len(more), n-len(f.partialFrame))])
		f.partialFrame = append(f.partialFrame, more[:got]...)
		if err != nil {
			return err
		}
	}
	return nil
}
