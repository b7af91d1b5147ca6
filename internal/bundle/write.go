package bundle

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// WriteTar writes the bundle as a tar. Equal bundles give equal bytes.
func (a *Artefact) WriteTar(w io.Writer) error {
	index, parts, err := a.layout()
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{ocispec.ImageLayoutFile, layoutFile()}, {ocispec.ImageIndexFile, index}} {
		err := out.WriteHeader(tarHeader(f.name, int64(len(f.data))))
		if err == nil {
			_, err = out.Write(f.data)
		}
		if err != nil {
			return err
		}
	}
	m := newMeter(parts, a.Progress)
	for _, p := range parts {
		if err := out.WriteHeader(tarHeader(blobFile(p.Digest), p.Size)); err != nil {
			return err
		}
		if err := p.copyTo(io.MultiWriter(out, m)); err != nil {
			return err
		}
	}
	return out.Close()
}

// Visit calls push for each blob of the bundle, in an order that a registry accepts. Layers and configs come first, a manifest comes after
// the blobs that it references, and the root comes last.
func (a *Artefact) Visit(push func(p Part, isRoot bool) error) error {
	_, parts, err := a.layout()
	for i, p := range slices.Backward(parts) {
		if err != nil {
			return err
		}
		err = push(p, i == 0)
	}
	return err
}

// A meter counts the bytes that are written to it, and reports them.
type meter struct {
	done, total int64
	report      func(done, total int64) error // may be nil
}

// newMeter returns a meter for the bytes of all parts.
func newMeter(parts []Part, report func(done, total int64) error) *meter {
	m := &meter{report: report}
	for _, p := range parts {
		m.total += p.Size
	}
	return m
}

func (m *meter) Write(b []byte) (int, error) {
	m.done += int64(len(b))
	if m.report == nil {
		return len(b), nil
	}
	return len(b), m.report(m.done, m.total)
}

func tarHeader(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatUSTAR}
}

func layoutFile() []byte {
	b, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		panic(err) // a struct with one string
	}
	return b
}

// copyTo writes the bytes of a part, and checks their number and digest.
func (p Part) copyTo(w io.Writer) error {
	r, err := p.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	sum := digest.SHA256.Digester()
	n, err := io.Copy(io.MultiWriter(w, sum.Hash()), io.LimitReader(r, p.Size))
	switch {
	case err != nil:
		return fmt.Errorf("copy %s: %w", p.Digest, err)
	case n != p.Size || sum.Digest() != p.Digest:
		return differs(p.Descriptor)
	}
	return nil
}
