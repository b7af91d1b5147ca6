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

	"github.com/islet-edge/islet/internal/registry"
)

const (
	// maxManifest is the maximum size of an index or a manifest, in bytes.
	maxManifest = registry.MaxManifest
	// maxConfig is the maximum size of an image's config, in bytes.
	maxConfig = 1 << 20
	// maxDocuments is the maximum total size of the indexes, manifests and configs that are read to
	// find one image, in bytes.
	maxDocuments = 8 << 20
	// smallDocuments limits the total size of the documents of an image, in bytes. Only one image at
	// a time may exceed smallDocuments.
	smallDocuments = 256 << 10
)

// A readFunc reads a small blob: an index, a manifest or a config. If the descriptor contains a
// size, the blob is not longer than this size.
type readFunc func(context.Context, ocispec.Descriptor) ([]byte, error)

// documentReader reads the indexes, manifests and configs of one image, with a limit on their total
// size. It caches them until keepOnly is called.
type documentReader struct {
	service *Service
	fetch   readFunc
	left    int64 // number of bytes that may still be read
	cached  map[digest.Digest][]byte
	large   bool // whether this image may exceed smallDocuments

	maxTime time.Duration // maximum time for reading, excluding the wait for other images
	timer   *time.Timer   // ends the reading; may be nil
}

func (s *Service) newDocuments(fetch readFunc) *documentReader {
	return &documentReader{service: s, fetch: fetch, left: maxDocuments, cached: map[digest.Digest][]byte{}}
}

// read returns a document from the cache, or reads it. The method is a readFunc.
func (d *documentReader) read(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if b, ok := d.cached[desc.Digest]; ok {
		return b, nil
	}
	return d.fetch(ctx, desc)
}

// decode reads a document of at most maxSize bytes and decodes it. The length counts towards the
// limit of the image. Only one document is decoded at a time in this process.
func (d *documentReader) decode(ctx context.Context, desc ocispec.Descriptor, maxSize int64, into any) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %.300q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.Size > maxSize {
		return fmt.Errorf("%s has %d bytes, more than the %d that %s may have: %w",
			desc.Digest, desc.Size, maxSize, kindOf(maxSize), errdefs.ErrInvalidArgument)
	}
	if err := d.chargeBytes(ctx, desc.Digest, max(desc.Size, 0)); err != nil {
		return err
	}
	b, err := d.read(ctx, desc)
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, err)
	}
	size := int64(len(b))
	if size > maxSize {
		return fmt.Errorf("%s has %d bytes, more than the %d that %s may have: %w",
			desc.Digest, size, maxSize, kindOf(maxSize), errdefs.ErrInvalidArgument)
	}
	// The descriptors in an archive may have no size.
	if err := d.chargeBytes(ctx, desc.Digest, size-max(desc.Size, 0)); err != nil {
		return err
	}
	d.cached[desc.Digest] = b
	d.service.shared.decoding.Lock()
	defer d.service.shared.decoding.Unlock()
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, errors.Join(err, errdefs.ErrInvalidArgument))
	}
	return nil
}

// readStored reads a document from a content store. It checks the stored size, because a hostile
// manifest may contain the digest of a much larger blob, such as a layer. It also checks the digest,
// because the disk may have damaged the file.
func readStored(ctx context.Context, store content.Provider, desc ocispec.Descriptor) ([]byte, error) {
	ra, err := store.ReaderAt(ctx, ocispec.Descriptor{Digest: desc.Digest})
	if err != nil {
		return nil, err
	}
	defer ra.Close()
	if ra.Size() > maxManifest { // the actual size, not the size in the descriptor
		return nil, fmt.Errorf("%d bytes are too many: %w", ra.Size(), errdefs.ErrInvalidArgument)
	}
	b := make([]byte, ra.Size())
	if n, err := ra.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("read %d of %d bytes: %w", n, len(b), errors.Join(io.ErrUnexpectedEOF, err))
	}
	if err := checkDigest(desc.Digest, b); err != nil {
		return nil, fmt.Errorf("the stored file is damaged: %w", err)
	}
	return b, nil
}

// checkDigest returns an error if a document has another digest.
func checkDigest(want digest.Digest, b []byte) error {
	if err := want.Validate(); err != nil {
		return fmt.Errorf("digest %.300q: %w: %w", want, err, errdefs.ErrInvalidArgument)
	}
	if got := want.Algorithm().FromBytes(b); got != want {
		return fmt.Errorf("its digest is %s instead of %s: %w", got, want, errdefs.ErrDataLoss)
	}
	return nil
}

func kindOf(maxSize int64) string {
	if maxSize == maxConfig {
		return "a config"
	}
	return "an index or a manifest"
}

// chargeBytes counts n bytes towards the limit of the image. If this makes the image exceed
// smallDocuments, chargeBytes waits until no other image exceeds smallDocuments.
func (d *documentReader) chargeBytes(ctx context.Context, what digest.Digest, n int64) error {
	if d.left -= n; d.left < 0 {
		return fmt.Errorf("%s: the indexes, manifests and configs of the image have more than %d bytes: %w",
			what, maxDocuments, errdefs.ErrInvalidArgument)
	}
	if d.large || maxDocuments-d.left <= smallDocuments {
		return nil
	}
	if d.timer != nil {
		d.timer.Stop()
		defer d.timer.Reset(d.maxTime)
	}
	if err := d.service.shared.documents.Acquire(ctx, 1); err != nil {
		return err
	}
	d.large = true
	return nil
}

// withTimeout returns a context that is cancelled with errStalled if reading takes longer than limit.
func (d *documentReader) withTimeout(ctx context.Context, limit time.Duration) (bounded context.Context, done func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	d.maxTime, d.timer = limit, time.AfterFunc(limit, func() { cancel(errStalled) })
	return bounded, func() {
		d.timer.Stop()
		cancel(nil)
	}
}

// keepOnly drops all cached documents except the documents of p. After that, another image may exceed
// smallDocuments.
func (d *documentReader) keepOnly(p *pickedImage) {
	cached := map[digest.Digest][]byte{}
	if p != nil {
		for _, desc := range p.listDocuments() {
			if b, ok := d.cached[desc.Digest]; ok {
				cached[desc.Digest] = b
			}
		}
	}
	d.cached = cached
	if d.large {
		d.large = false
		d.service.shared.documents.Release(1)
	}
}

// listDocuments returns the descriptors of the image's indexes, manifest and config.
func (p *pickedImage) listDocuments() []ocispec.Descriptor {
	return append(append([]ocispec.Descriptor{}, p.parents...), p.manifest, p.config)
}
