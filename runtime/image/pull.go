package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// PullWithProgress is like PullImage and also reports the progress. The progress is never reported concurrently. If a pull fails
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
	reg := s.newRegistry(ctx, auth, 0, nil)
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
	return target, asNetworkError(err)
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

// pullLayers downloads the layers that are not unpacked yet, several at a time. A layer is unpacked
// when it and all layers below it have arrived.
func (s *Service) pullLayers(ctx context.Context, p *pickedImage, fetcher remotes.Fetcher, t *transfer) error {
	unpacked, err := s.countUnpacked(ctx, p.chainIDs())
	if err != nil {
		return err
	}
	for _, l := range p.layers[unpacked.layers:] {
		t.total += l.Size
	}
	g, gctx := errgroup.WithContext(ctx)
	arrived := awaitingProvider{Provider: s.c.Client.ContentStore(), done: map[digest.Digest]chan struct{}{}}
	var wanted []ocispec.Descriptor
	for _, l := range p.layers[unpacked.layers:] {
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
