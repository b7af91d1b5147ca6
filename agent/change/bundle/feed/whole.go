package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/download"
)

const (
	wholeFile = "whole.tar"
	// headSize is the number of bytes of a tar that must contain the documents up to the contents.
	headSize = 4 << 20
	// maxOverhead is the maximum size of a tar without the blobs that its contents reach: headers and padding of all blobs, the signature
	// and the root.
	maxOverhead = format.MaxBlobs*(512+511) + 8<<20
)

// A wholeTar is a tar that a server can send only as a whole.
type wholeTar struct{ *format.Tar }

// openWhole writes a response to a file. It verifies the signatures of the bundle with the first bytes, and writes no more than the size in
// the signed contents.
func (o *Opener) openWhole(a *http.Response, r Request) (server, error) {
	f := folder{o.c.Dir, o.c.CheckSpace}
	if err := errors.Join(f.remove(), o.c.CheckSpace(headSize), os.MkdirAll(o.c.Dir, 0o700)); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(filepath.Join(o.c.Dir, wholeFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = o.saveWhole(out, a, r)
	if err == nil {
		var t *format.Tar
		if t, err = format.NewTar(out); err == nil {
			return &wholeTar{t}, nil
		}
	}
	return nil, errors.Join(err, out.Close(), f.remove()) // it cannot be resumed
}

func (o *Opener) saveWhole(out *os.File, a *http.Response, r Request) error {
	download.Extend(a.Body, headSize)
	n, err := io.Copy(out, io.LimitReader(a.Body, headSize))
	if err != nil {
		return err
	}
	head, err := format.NewTarHead(out, n)
	if err != nil {
		return err
	}
	b, err := format.Open(head, o.c.Policy)
	if err != nil {
		return fmt.Errorf("%w (the server sends the bundle only as a whole: then its documents must be in the first %d MiB, as in a tar "+
			"of islet bundle build; a server that supports ranges has no such limit; the URL of a directory ends with a slash)",
			err, headSize>>20)
	}
	if err := r.Accept(b); err != nil {
		return err
	}
	most := b.Contents.Size + maxOverhead
	if a.ContentLength > most {
		return fmt.Errorf("the tar has %d bytes, and the signed contents allow %d", a.ContentLength, most)
	}
	rest := most - n
	if a.ContentLength >= 0 {
		rest = a.ContentLength - n
	}
	if err := o.c.CheckSpace(rest); err != nil {
		return err
	}
	download.Extend(a.Body, rest)
	m, err := io.Copy(io.MultiWriter(out, &meter{n, n + rest, r.Tell}), io.LimitReader(a.Body, rest+1))
	if err == nil && m > rest {
		err = fmt.Errorf("the tar has more than the %d bytes that the signed contents allow", n+rest)
	}
	return err
}

func (t *wholeTar) readFile(_ context.Context, name string) ([]byte, error) {
	r, _, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	return readSmall(r, name)
}

// fetch is not used, because a Layout reads the file.
func (t *wholeTar) fetch(_ context.Context, d ocispec.Descriptor, _ int64) (io.ReadCloser, int64, error) {
	return nil, 0, missing(d.Digest.String())
}
