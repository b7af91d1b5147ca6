package image

import (
	"bufio"
	"encoding/binary"
	"math"

	"github.com/klauspost/compress/zstd"
)

// frameChecker forwards a zstd stream to a decoder. It checks the header of each frame first, because the
// decoder allocates as much memory as the header specifies.
// https://www.rfc-editor.org/rfc/rfc8878#section-3.1
type frameChecker struct {
	in          *bufio.Reader
	checkWindow func(bytes int64) error
	left        int64 // number of bytes of the current part that are forwarded next
	next        func() error
	sum         int64 // number of bytes of the checksum after the last block
}

// newFrames returns a reader that passes the window size of each frame to the caller's function. If the function returns an error, the
// stream ends with the error.
func newFrames(in *bufio.Reader, window func(bytes int64) error) *frameChecker {
	f := &frameChecker{in: in, checkWindow: window}
	f.next = f.readFrameHeader
	return f
}

func (f *frameChecker) Read(p []byte) (int, error) {
	for f.left == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n, err := f.in.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

// passThrough forwards the rest of the stream unchecked, so that the decoder reports the error in the stream.
func (f *frameChecker) passThrough() error {
	f.left = math.MaxInt64
	return nil
}

// readFrameHeader reads the header of a frame.
func (f *frameChecker) readFrameHeader() error {
	head, err := f.in.Peek(zstd.HeaderMaxSize)
	if len(head) == 0 {
		return err
	}
	var h zstd.Header
	if h.Decode(head) != nil {
		return f.passThrough()
	}
	if h.Skippable {
		f.left = int64(h.HeaderSize) + int64(h.SkippableSize)
		return nil
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if err := f.checkWindow(int64(min(window, math.MaxInt64))); err != nil {
		return err
	}
	f.left, f.sum, f.next = int64(h.HeaderSize), 0, f.readBlockHeader
	if h.HasCheckSum {
		f.sum = 4
	}
	return nil
}

// readBlockHeader reads the header of a block, which contains the block's length.
func (f *frameChecker) readBlockHeader() error {
	head, err := f.in.Peek(3)
	if len(head) < 3 {
		if len(head) > 0 {
			return f.passThrough()
		}
		return err
	}
	bits := binary.LittleEndian.Uint32(append(head[:3:3], 0))
	last, kind, size := bits&1 == 1, bits>>1&3, int64(bits>>3)
	const repeated = 1 // a single byte is repeated size times
	if kind == repeated {
		size = 1
	}
	f.left = 3 + size
	if last {
		f.left += f.sum
		f.next = f.readFrameHeader
	}
	return nil
}
