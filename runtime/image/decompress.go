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

// maxWindow bounds what a zstd stream may demand to keep in memory, in bytes.
// Images are made with 8 MiB; only "zstd --ultra --long" asks for more.
const maxWindow = 64 << 20

// magics are how compressed streams begin.
var magics = []struct {
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

// compression names how a stream that begins with head is compressed, "" for not.
func compression(head []byte) string {
	for _, m := range magics {
		if bytes.HasPrefix(head, m.magic) {
			return m.name
		}
	}
	return ""
}

// decompress returns the plain stream behind r, which may be plain itself, gzip
// or zstd, but only once. One goroutine does the work, the caller's, so that
// memory stays small. Close does not close r.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var out io.ReadCloser
	switch how := compression(head); how {
	case "":
		return io.NopCloser(in), nil
	case "gzip":
		out, err = gzip.NewReader(in)
	case "zstd":
		var d *zstd.Decoder
		d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err == nil {
			out = d.IOReadCloser()
		}
	default:
		return nil, fmt.Errorf("compressed with %s, which is not supported: use gzip, zstd or none: %w", how, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	plain := bufio.NewReaderSize(out, 4<<10)
	head, err = plain.Peek(6)
	if err != nil && err != io.EOF {
		out.Close()
		return nil, err
	}
	if how := compression(head); how != "" {
		out.Close()
		return nil, fmt.Errorf("compressed twice, with %s inside: %w", how, errdefs.ErrInvalidArgument)
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, out}, nil
}
