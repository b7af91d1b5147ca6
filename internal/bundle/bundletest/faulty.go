package bundletest

import (
	"bytes"
	"io"
	"syscall"

	"github.com/islet-edge/islet/internal/bundle"
)

// A Faulty is a Layout with one fault: when the (At+1)th file is opened, the medium is pulled out, or the file has other bytes than before.
// A Faulty is not safe for concurrent use.
type Faulty struct {
	bundle.Layout
	At    int
	Lie   bool // the file has other bytes of the same size; otherwise reads of it, and of all later files, fail with EIO
	Opens int  // how many files were opened
}

// Open implements bundle.Layout.
func (f *Faulty) Open(name string) (io.ReadCloser, int64, error) {
	at := f.Opens - f.At
	f.Opens++
	if at > 0 && !f.Lie {
		return nil, 0, syscall.EIO
	}
	r, size, err := f.Layout.Open(name)
	if err != nil || at != 0 {
		return r, size, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, 0, err
	}
	if f.Lie {
		data[len(data)/2] ^= 1
		return reader{bytes.NewReader(data), r}, size, nil
	}
	return reader{io.MultiReader(bytes.NewReader(data[:len(data)/2]), broken{}), r}, size, nil
}

type reader struct {
	io.Reader
	io.Closer
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.EIO }
