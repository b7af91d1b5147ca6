package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/islet-edge/islet/internal/registry"
	"github.com/islet-edge/islet/runtime/cri"
)

// layersAtOnce is the maximum number of concurrent downloads of one pull.
const layersAtOnce = 3

// PullImage pulls an image by tag or digest, unpacks it and returns its image ID. It writes nothing
// if the image already exists on this node.
func (s *Service) PullImage(ctx context.Context, req *api.PullImageRequest) (*api.PullImageResponse, error) {
	return s.PullWithProgress(ctx, req, nil)
}

// PullWithProgress does the same as PullImage and also reports the progress. The progress is never reported concurrently. If a pull fails
// or the process ends, its downloads are kept for a day. The next pull of the same image resumes them. The message of a network error
// begins with RegistryUnavailable.
func (s *Service) PullWithProgress(
	ctx context.Context, req *api.PullImageRequest, progress func(cri.ImportProgress),
) (*api.PullImageResponse, error) {
	ctx = withNamespace(ctx)
	ref, err := normalizeName(req.GetImage().GetImage())
	if err != nil {
		return nil, err
	}
	progress, end := s.active.trackActivity(ref.String(), 0, progress)
	defer end()
	if err := s.pulls.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("pull %s: %w", ref, err)
	}
	defer s.pulls.Release(1)
	id, err := s.pullImage(ctx, ref.String(), req.GetAuth(), &transfer{ref: ref.String(), report: progress})
	if err != nil {
		return nil, registry.WithoutQueries(wrapUnavailable(fmt.Errorf("pull %s: %w", ref, err)))
	}
	return &api.PullImageResponse{ImageRef: id.String()}, nil
}

func (s *Service) pullImage(ctx context.Context, name string, auth *api.AuthConfig, t *transfer) (digest.Digest, error) {
	reg := s.newRegistry(ctx, auth)
	defer reg.close()
	target, err := s.resolve(ctx, reg, name)
	if err != nil {
		return "", err
	}
	if id := s.recordedID(ctx, name, target.Digest); id != "" {
		t.reportStatus("exists")
		return id, nil
	}
	if err := s.rate.Wait(ctx); err != nil {
		return "", err
	}
	fetcher, err := reg.Fetcher(ctx, name)
	if err != nil {
		return "", err
	}
	ctx, done, err := s.pullLease(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { done(err == nil) }()
	docs := s.newDocuments((&blobFetcher{store: s.c.Client.ContentStore(), fetcher: fetcher, stall: s.stall}).read)
	p, err := s.choosePulled(ctx, target, docs)
	if err != nil {
		return "", err
	}
	if err = s.pullLayers(ctx, p, fetcher, t); err != nil {
		return "", err
	}
	if err = s.storeDocuments(ctx, p, docs.read); err != nil {
		return "", err
	}
	if err = s.recordName(ctx, name, p.targetDescriptor(), p.newEntry()); err != nil {
		return "", err
	}
	s.notifyChange()
	t.reportStatus("done")
	return p.config.Digest, nil
}

// choosePulled calls chooseOf for a pull, with a timeout, because only one pull at a time may read large documents.
// Afterwards the documents of the image are in memory or, if they are large, in the content store.
func (s *Service) choosePulled(ctx context.Context, target ocispec.Descriptor, d *documentReader) (p *pickedImage, err error) {
	defer func() { d.keepOnly(p) }()
	const documents = 4
	bounded, done := d.withTimeout(ctx, documents*s.stall)
	defer done()
	if p, err = s.chooseOf(bounded, target, d); err != nil {
		if errors.Is(context.Cause(bounded), errStalled) {
			err = errStalled
		}
		return nil, err
	}
	if maxDocuments-d.left <= smallDocuments {
		return p, nil
	}
	for _, desc := range p.listDocuments() {
		if err := s.storeBlob(ctx, desc, nil, d.read); err != nil {
			return nil, err
		}
	}
	clear(d.cached)
	return p, nil
}

// resolve resolves a name at the registry. The timeout is long enough for several mirrors.
func (s *Service) resolve(ctx context.Context, reg *registryClient, name string) (ocispec.Descriptor, error) {
	const mirrors = 4
	ctx, cancel := context.WithTimeoutCause(ctx, mirrors*s.stall, errStalled)
	defer cancel()
	_, target, err := reg.Resolve(ctx, name)
	return target, err
}

// recordedID returns the ID of the image to which name refers. It returns "" if the recorded name
// refers to another digest than target.
func (s *Service) recordedID(ctx context.Context, name string, target digest.Digest) digest.Digest {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if s.loadIndex(ctx) != nil {
		return "" // the pull will fail with the same error
	}
	if r := s.index.names[name]; r.target == target {
		return r.id
	}
	return ""
}

// pullLease returns a context with a lease for a pull, like withLease. The lease belongs to the
// image's name, so two pulls of the same name do not run at the same time. If the pull fails, the
// lease is kept, so that the next pull can resume the downloads.
func (s *Service) pullLease(ctx context.Context, name string) (leased context.Context, done func(ok bool), err error) {
	if err := s.dropUnfinished(ctx); err != nil {
		return nil, nil, err
	}
	l := leases.Lease{ID: "islet-pull-" + digest.FromString(name).Encoded()}
	if err := s.leases.acquire(ctx, l.ID); err != nil {
		return nil, nil, err
	}
	labels := leases.WithLabels(map[string]string{labelLease: leasePull, labelRef: name})
	_, err = s.c.Client.LeasesService().Create(ctx, leases.WithID(l.ID), labels)
	if err != nil && !errdefs.IsAlreadyExists(err) {
		s.leases.release(l.ID)
		return nil, nil, fmt.Errorf("create lease: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func(ok bool) {
		if ok {
			s.dropLease(ctx, l)
		}
		s.leases.release(l.ID)
		if ok {
			return
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err := s.sweepLeases(clean); err != nil {
			s.log.Warn("leases of unfinished images could not be cleaned up", "error", err)
		}
	}, nil
}

// pullLayers downloads the layers that are not unpacked yet, several at a time. A layer is unpacked
// when it and all layers below it have arrived.
func (s *Service) pullLayers(ctx context.Context, p *pickedImage, fetcher remotes.Fetcher, t *transfer) error {
	unpacked, err := s.countUnpacked(ctx, p.chainIDs())
	if err != nil {
		return err
	}
	for _, l := range p.layers[unpacked:] {
		t.total += l.Size
	}
	g, gctx := errgroup.WithContext(ctx)
	arrived := awaitingProvider{Provider: s.c.Client.ContentStore(), done: map[digest.Digest]chan struct{}{}}
	var wanted []ocispec.Descriptor
	for _, l := range p.layers[unpacked:] {
		if arrived.done[l.Digest] == nil { // an image may contain the same layer twice
			arrived.done[l.Digest] = make(chan struct{})
			wanted = append(wanted, l)
		}
	}
	g.Go(func() error {
		err := s.unpackLayers(gctx, p, unpacked, arrived)
		if err == nil {
			t.reportStatus("unpacked")
		}
		return err
	})
	limit := make(chan struct{}, layersAtOnce)
	g.Go(func() error {
		for _, l := range wanted { // the bottom layer first
			select {
			case limit <- struct{}{}:
			case <-gctx.Done():
				return gctx.Err()
			}
			g.Go(func() error {
				defer func() { <-limit }()
				if err := s.fetchLayer(gctx, l, fetcher, t); err != nil {
					return fmt.Errorf("download layer %s: %w", l.Digest, err)
				}
				close(arrived.done[l.Digest])
				return nil
			})
		}
		return nil
	})
	return g.Wait()
}

// awaitingProvider is a content.Provider that waits for blobs that are being downloaded.
type awaitingProvider struct {
	content.Provider
	done map[digest.Digest]chan struct{}
}

// ReaderAt waits until the blob has arrived, and opens it.
func (a awaitingProvider) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	select {
	case <-a.done[desc.Digest]:
		return a.Provider.ReaderAt(ctx, desc)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

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
		if err == nil || !resumed || network || ctx.Err() != nil {
			return err
		}
		s.log.Info("a resumed download is damaged and starts again", "layer", l.Digest, "error", err)
		t.add(before - t.downloadedBytes())
		if err := store.Abort(ctx, key); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
}

// downloadLayer makes one attempt for fetchLayer.
func (s *Service) downloadLayer(ctx context.Context, l ocispec.Descriptor, fetcher remotes.Fetcher, t *transfer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := remotes.Fetch(ctx, s.c.Client.ContentStore(), watchedFetcher{fetcher, s, t, cancel}, l)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
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
		return nil, err
	}
	return &layerBody{ReadCloser: body, to: w.to, stall: w.service.stall, idle: idle, limit: w.service.newCountingReader(body)}, nil
}

// A blobFetcher reads indexes, manifests and configs from the content store or, if they are not
// there, from the registry.
type blobFetcher struct {
	store   content.Provider
	fetcher remotes.Fetcher
	stall   time.Duration
}

func (r *blobFetcher) read(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	b, err := readStored(ctx, r.store, desc)
	if errdefs.IsNotFound(err) {
		b, err = r.fetch(ctx, desc)
	}
	return b, err
}

// fetch reads a blob from the registry. It returns an error if the length differs from the size in
// the descriptor.
func (r *blobFetcher) fetch(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if desc.Size <= 0 || desc.Size > maxManifest {
		return nil, fmt.Errorf("its descriptor has the size %d: %w", desc.Size, errdefs.ErrInvalidArgument)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.stall, errStalled)
	defer cancel()
	body, err := r.fetcher.Fetch(registry.WithReaderLimit(ctx), desc)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b := make([]byte, desc.Size)
	if _, err := io.ReadFull(body, b); err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(body, make([]byte, 1)); n > 0 || err != io.EOF {
		return nil, fmt.Errorf("the registry sent more than the %d bytes of its descriptor: %w",
			desc.Size, errors.Join(errdefs.ErrDataLoss, err))
	}
	if got := desc.Digest.Algorithm().FromBytes(b); got != desc.Digest {
		return nil, errors.Join(fmt.Errorf("the registry sent the digest %s instead", got), errdefs.ErrDataLoss)
	}
	return b, nil
}
