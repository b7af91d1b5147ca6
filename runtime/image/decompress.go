package image

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compressionMagics are the first bytes of compressed streams.
var compressionMagics = []struct {
	name  string
	magic []byte
}{
	{"gzip", []byte{0x1f, 0x8b}},
	{"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd}},
	{"xz", []byte{0xfd, '7', 'z', 'X', 'Z', 0}},
	{"bzip2", []byte("BZh")},
	{"lz4", []byte{0x04, 0x22, 0x4d, 0x18}},
	{"zip", []byte("PK\x03\x04")},
}

// headSize is the number of bytes from which the compression is detected.
const headSize = 512

// ustarOffset is the offset of the magic number in a tar header. A stream with this magic number is
// uncompressed, even if the name of its first file begins like compressed data.
const ustarOffset = 257

// detectCompression detects how a stream is compressed, from its first bytes. It returns "" for an uncompressed stream.
func detectCompression(head []byte) string {
	if len(head) > ustarOffset && bytes.HasPrefix(head[ustarOffset:], []byte("ustar")) {
		return ""
	}
	for _, m := range compressionMagics {
		if bytes.HasPrefix(head, m.magic) {
			return m.name
		}
	}
	// This is the magic number of a skippable frame, which pzstd and other programs write at the beginning of a zstd stream.
	if len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18}) {
		return "zstd"
	}
	return ""
}

// newDecompressor returns the uncompressed content of r, which may be compressed with gzip or zstd, but only once. The data is
// decompressed by the goroutine that calls Read, which saves memory. For a zstd stream, the caller's function receives the size of the
// window before the memory is allocated, and can return an error. Close does not close r.
func newDecompressor(r io.Reader, window func(bytes int64) error) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(headSize)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var out io.ReadCloser
	switch format := detectCompression(head); format {
	case "":
		return io.NopCloser(in), nil
	case "gzip":
		out, err = gzip.NewReader(in)
	case "zstd":
		var d *zstd.Decoder
		d, err = zstd.NewReader(newFrames(in, window), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err == nil {
			out = d.IOReadCloser()
		}
	default:
		return nil, fmt.Errorf("compressed with %s, which is not supported: use gzip, zstd or none: %w", format, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	plain := bufio.NewReaderSize(out, 4<<10)
	head, err = plain.Peek(headSize)
	if err != nil && err != io.EOF {
		out.Close()
		return nil, err
	}
	if format := detectCompression(head); format != "" {
		out.Close()
		return nil, fmt.Errorf("compressed twice, with %s inside: %w", format, errdefs.ErrInvalidArgument)
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, out}, nil
}
