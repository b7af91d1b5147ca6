package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxManifest bounds an index or a manifest, in bytes. Registries accept 4 MiB.
	maxManifest = 4 << 20
	// maxConfig bounds the config of an image, in bytes.
	maxConfig = 1 << 20
	// maxDocuments bounds the indexes, manifests and configs that are read to find one image, in
	// total and in bytes.
	maxDocuments = 8 << 20
	// fewDocuments is how many bytes of documents an image may use while others use theirs. Only
	// one image at a time may use more.
	fewDocuments = 256 << 10
)

// readFunc reads a small blob: an index, a manifest or a config. If the descriptor has a size, the
// blob is not longer.
type readFunc func(context.Context, ocispec.Descriptor) ([]byte, error)

// documents reads the indexes, manifests and configs of one image, within a budget of bytes. It
// caches them until keepOnly.
type documents struct {
	of    *Service
	from  readFunc
	left  int64 // bytes left of the budget
	kept  map[digest.Digest][]byte
	large bool // this image may exceed fewDocuments

	most time.Duration // maximum reading time, not counting time in which the image waits for others
	late *time.Timer   // ends the reading; may be nil
}

func (s *Service) newDocuments(from readFunc) *documents {
	return &documents{of: s, from: from, left: maxDocuments, kept: map[digest.Digest][]byte{}}
}

// read returns a document from the cache, or reads it. It is a readFunc.
func (d *documents) read(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if b, ok := d.kept[desc.Digest]; ok {
		return b, nil
	}
	return d.from(ctx, desc)
}

// decode reads a document of at most most bytes, subtracts it from the budget and decodes it. Only
// one document of the process is decoded at a time.
func (d *documents) decode(ctx context.Context, desc ocispec.Descriptor, most int64, into any) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %.300q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.Size > most {
		return fmt.Errorf("%s has %d bytes, more than the %d that %s may have: %w",
			desc.Digest, desc.Size, most, kindOf(most), errdefs.ErrInvalidArgument)
	}
	if err := d.spend(ctx, desc.Digest, max(desc.Size, 0)); err != nil {
		return err
	}
	b, err := d.read(ctx, desc)
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, err)
	}
	size := int64(len(b))
	if size > most {
		return fmt.Errorf("%s has %d bytes, more than the %d that %s may have: %w",
			desc.Digest, size, most, kindOf(most), errdefs.ErrInvalidArgument)
	}
	// An archive's descriptors may lack the size.
	if err := d.spend(ctx, desc.Digest, size-max(desc.Size, 0)); err != nil {
		return err
	}
	d.kept[desc.Digest] = b
	d.of.places.decoding.Lock()
	defer d.of.places.decoding.Unlock()
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, errors.Join(err, errdefs.ErrInvalidArgument))
	}
	return nil
}

// readStored reads a document from a content store. It checks the stored size, because the digest
// may be that of a much larger blob, such as a layer.
func readStored(ctx context.Context, store content.Provider, desc ocispec.Descriptor) ([]byte, error) {
	ra, err := store.ReaderAt(ctx, ocispec.Descriptor{Digest: desc.Digest})
	if err != nil {
		return nil, err
	}
	defer ra.Close()
	if ra.Size() > maxManifest { // the actual size, not the descriptor's
		return nil, fmt.Errorf("%d bytes are too many: %w", ra.Size(), errdefs.ErrInvalidArgument)
	}
	b := make([]byte, ra.Size())
	if n, err := ra.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("%d of %d bytes: %w", n, len(b), errors.Join(io.ErrUnexpectedEOF, err))
	}
	return b, nil
}

func kindOf(most int64) string {
	if most == maxConfig {
		return "a config"
	}
	return "an index or a manifest"
}

// spend subtracts n bytes from the budget. Beyond fewDocuments it waits until no other image uses
// as many.
func (d *documents) spend(ctx context.Context, what digest.Digest, n int64) error {
	if d.left -= n; d.left < 0 {
		return fmt.Errorf("%s: the indexes, manifests and configs of the image have more than %d bytes: %w",
			what, maxDocuments, errdefs.ErrInvalidArgument)
	}
	if d.large || maxDocuments-d.left <= fewDocuments {
		return nil
	}
	if d.late != nil {
		d.late.Stop()
		defer d.late.Reset(d.most)
	}
	if err := d.of.places.documents.Acquire(ctx, 1); err != nil {
		return err
	}
	d.large = true
	return nil
}

// within returns a context that is cancelled with errStalled if reading takes longer than most.
func (d *documents) within(ctx context.Context, most time.Duration) (bounded context.Context, done func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	d.most, d.late = most, time.AfterFunc(most, func() { cancel(errStalled) })
	return bounded, func() {
		d.late.Stop()
		cancel(nil)
	}
}

// keepOnly drops all cached documents except those of p, and lets another image exceed
// fewDocuments.
func (d *documents) keepOnly(p *pick) {
	kept := map[digest.Digest][]byte{}
	if p != nil {
		for _, desc := range p.documents() {
			if b, ok := d.kept[desc.Digest]; ok {
				kept[desc.Digest] = b
			}
		}
	}
	d.kept = kept
	if d.large {
		d.large = false
		d.of.places.documents.Release(1)
	}
}

// documents returns the descriptors of the image's indexes, manifest and config.
func (p *pick) documents() []ocispec.Descriptor {
	return append(append([]ocispec.Descriptor{}, p.parents...), p.manifest, p.config)
}
