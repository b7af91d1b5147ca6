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

// Bounds of a frame that controls a SPDY session. Its headers are compressed, a thousandfold if a
// client wants it, and are kept as long as their stream; a stream of exec or port-forward has three
// short ones. The library would take 1000 of 1 MiB.
const (
	maxControl    = 8 << 10 // bytes on the wire
	maxHeaders    = 16      // of a stream
	maxHeaderText = 512     // bytes of a name or a value
)

// Bound returns a ResponseWriter from which a SPDY library takes over a connection whose control
// frames are bounded.
func Bound(w http.ResponseWriter) http.ResponseWriter { return framed{w} }

type framed struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (f framed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(f.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	checked := &frames{Conn: c, in: rw.Reader}
	checked.framer, err = frame.NewFramerWithOptions(io.Discard, &checked.control,
		frame.WithMaxControlFramePayloadSize(maxControl), frame.WithMaxHeaderCount(maxHeaders), frame.WithMaxHeaderFieldSize(maxHeaderText))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return checked, bufio.NewReadWriter(bufio.NewReader(checked), rw.Writer), nil
}

// frames reads a SPDY session. A control frame is read on once all of it has come and a decoder
// with bounds has decoded it; data passes as it comes.
type frames struct {
	net.Conn
	in      io.Reader
	framer  *frame.Framer // decodes control
	control bytes.Buffer
	begun   []byte // of a frame that is not whole
	ready   []byte // to be read
	data    int    // bytes of a data frame that are still to come
}

// frameHead is the length of what comes before each frame's content.
const frameHead = 8

// Read fails at a control frame beyond the bounds, and closes the connection: a library may wait
// for streams, and not look at it, for as long as an idle session may last.
func (f *frames) Read(b []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.data > 0 {
			n, err := f.in.Read(b[:min(len(b), f.data)])
			f.data -= n
			return n, err
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// next reads the head of a data frame, or a whole control frame. After an error, such as that of
// a deadline, it goes on where it was.
func (f *frames) next() error {
	if err := f.fill(frameHead); err != nil {
		return err
	}
	length := int(f.begun[5])<<16 | int(f.begun[6])<<8 | int(f.begun[7])
	if f.begun[0]&0x80 == 0 {
		f.data = length
	} else {
		if length > maxControl {
			return errors.Join(fmt.Errorf("a SPDY control frame has %d bytes, more than %d", length, maxControl), f.Close())
		}
		if err := f.fill(frameHead + length); err != nil {
			return err
		}
		f.control.Write(f.begun)
		if _, err := f.framer.ReadFrame(); err != nil {
			return errors.Join(fmt.Errorf("a SPDY control frame is not accepted: %w", err), f.Close())
		}
		f.control.Reset()
	}
	f.ready, f.begun = f.begun, nil
	return nil
}

// fill reads until so many bytes of a frame are there.
func (f *frames) fill(n int) error {
	for len(f.begun) < n {
		var more [frameHead]byte
		got, err := f.in.Read(more[:min(len(more), n-len(f.begun))])
		f.begun = append(f.begun, more[:got]...)
		if err != nil {
			return err
		}
	}
	return nil
}
