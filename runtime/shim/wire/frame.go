package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Streams of a Frame.
const (
	StreamStdin  = byte(iota) // to the shim; an empty payload is the end of the input
	StreamStdout              // from the shim
	StreamStderr              // from the shim
	StreamResize              // to the shim; width and height, 16 bits each
	// StreamEnd marks the last frame that the shim sends. It is sent only if both sides support it.
	// The payload is an error message if output is missing, and empty otherwise.
	StreamEnd
)

// MaxFrame is the maximum payload of one frame, in bytes.
const MaxFrame = 32 << 10

// Frame returns a frame with the payload p, which it copies.
func Frame(stream byte, p []byte) []byte {
	b := make([]byte, 5, 5+len(p))
	b[0] = stream
	binary.BigEndian.PutUint32(b[1:], uint32(len(p)))
	return append(b, p...)
}

// WriteFrame writes one frame with a single call of Write.
func WriteFrame(w io.Writer, stream byte, p []byte) error {
	_, err := w.Write(Frame(stream, p))
	return err
}

// ReadFrame reads one frame. The payload is valid until the next call with the same buffer. The
// buffer must have MaxFrame bytes.
func ReadFrame(r io.Reader, buf []byte) (stream byte, p []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if int64(n) > int64(len(buf)) {
		return 0, nil, fmt.Errorf("frame of %d bytes is too long", n)
	}
	_, err = io.ReadFull(r, buf[:n])
	return head[0], buf[:n], err
}
