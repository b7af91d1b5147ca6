package image

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/islet-edge/islet/internal/registry"
)

// fetchLayer downloads a layer to the content store. It resumes an earlier download. If the result
// is damaged, for example by a power cut during the earlier download, it discards the result and
// downloads the layer again.
func (s *Service) fetchLayer(ctx context.Context, l ocispec.Descriptor, fetcher remotes.Fetcher, t *transfer) error {
	store, key := s.c.Client.ContentStore(), remotes.MakeRefKey(ctx, l)
	for {
		st, err := store.Status(ctx, key)
		resumed := err == nil && st.Offset > 0 || err != nil && !errdefs.IsNotFound(err)
		before := t.downloadedBytes()
		err = s.downloadLayer(ctx, l, fetcher, t)
		if errdefs.IsAlreadyExists(err) {
			t.add(l.Size)
			return nil
		}
		network := errors.Is(wrapUnavailable(err), crierrors.ErrRegistryUnavailable)
		if err == nil || !resumed || network || takesNoWrites(err) || ctx.Err() != nil {
			return err
		}
		s.log.Info("a resumed download is damaged and starts again", "layer", l.Digest, "error", err)
		t.add(before - t.downloadedBytes())
		if err := store.Abort(ctx, key); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
}

// takesNoWrites reports whether a disk is full or read-only, or a quota is reached. Such an error does not damage a download.
func takesNoWrites(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// downloadLayer makes one attempt for fetchLayer.
func (s *Service) downloadLayer(ctx context.Context, l ocispec.Descriptor, fetcher remotes.Fetcher, t *transfer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := remotes.Fetch(ctx, s.c.Client.ContentStore(), watchedFetcher{fetcher, s, t, cancel}, l)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if errors.Is(err, io.ErrUnexpectedEOF) { // the response is too short
		return networkError{err}
	}
	return err
}

// A watchedFetcher is a fetcher that counts bytes and cancels stalled downloads.
type watchedFetcher struct {
	remotes.Fetcher
	service *Service
	to      *transfer
	cancel  context.CancelCauseFunc
}

// Fetch starts a download.
func (w watchedFetcher) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	idle := time.AfterFunc(w.service.stall, func() { w.cancel(errStalled) })
	ctx = registry.WithProgress(registry.WithReaderLimit(ctx), func() { idle.Reset(w.service.stall) })
	body, err := w.Fetcher.Fetch(ctx, desc)
	idle.Stop()
	if err != nil {
		return nil, networkError{err}
	}
	return &layerBody{ReadCloser: body, to: w.to, stall: w.service.stall, idle: idle, limit: w.service.newCountingReader(body)}, nil
}

// defaultStall is the time after which a download that receives nothing is cancelled.
const defaultStall = time.Minute

// errStalled is the cancellation cause of a download that receives nothing.
var errStalled = registry.ErrStalled

// A layerBody is the body of a layer. It counts bytes and fails if nothing arrives or the disk is
// full. It supports Seek, to resume an earlier download.
type layerBody struct {
	io.ReadCloser
	to    *transfer
	stall time.Duration
	idle  *time.Timer // runs only during a Read, so that a slow disk does not count as a stalled download
	limit *spaceReader
	at    int64
}

func (d *layerBody) Read(p []byte) (int, error) {
	d.idle.Reset(d.stall)
	n, err := d.limit.Read(p)
	d.idle.Stop()
	d.at += int64(n)
	d.to.add(int64(n))
	return n, asNetworkError(err)
}

// Seek moves to an offset from the beginning. It supports no other seeks.
func (d *layerBody) Seek(offset int64, whence int) (int64, error) {
	s, ok := d.ReadCloser.(io.Seeker)
	if !ok || whence != io.SeekStart {
		return 0, errors.New("download does not support seeking")
	}
	at, err := s.Seek(offset, whence)
	if err == nil {
		d.to.add(at - d.at)
		d.at = at
	}
	return at, err
}
