package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	rerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/registry"
)

// A Remote reads a bundle in a registry, with the mirrors, certificates and limits of pulls.
type Remote struct {
	service *Service
	client  *registryClient
	fetcher remotes.Fetcher
	root    ocispec.Descriptor
	idle    time.Duration // how long its connections are kept after Close
}

// remoteAgent is the User-Agent of the requests for a bundle, unless the settings of the registry have another one.
const remoteAgent = "islet"

// remoteHeaders returns the headers of a request for the root of a bundle. They are short, because a node that follows a bundle sends the
// request often. Some registries reject a request without a User-Agent.
func remoteHeaders() http.Header {
	return http.Header{"Accept": {ocispec.MediaTypeImageIndex}, "User-Agent": {remoteAgent}}
}

// withConfiguredAgent removes remoteAgent from a request if the settings of the registry have a User-Agent. containerd appends it, and only
// the first one is sent.
func withConfiguredAgent(req *http.Request) *http.Request {
	agents := req.Header["User-Agent"]
	if len(agents) < 2 || agents[0] != remoteAgent {
		return req
	}
	req = req.Clone(req.Context())
	req.Header["User-Agent"] = agents[1:]
	return req
}

// OpenRemote resolves a reference such as registry.example.com/kiosk:42 with credentials, which may be nil. A message of a network error
// begins with RegistryUnavailable. The caller closes the Remote. If idle is not 0, its connections are then kept for this duration, and the
// next Remote uses them.
func (s *Service) OpenRemote(ctx context.Context, ref string, auth *api.AuthConfig, idle time.Duration) (*Remote, error) {
	named, err := normalizeName(ref)
	if err != nil {
		return nil, err
	}
	r := &Remote{service: s, client: s.newRegistry(ctx, auth, idle, remoteHeaders()), idle: idle}
	if r.root, err = s.resolve(ctx, r.client, named.String()); err == nil {
		r.fetcher, err = r.client.Fetcher(ctx, named.String())
	}
	if d, digested := named.(reference.Digested); err == nil && digested && d.Digest() != r.root.Digest {
		err = fmt.Errorf("the registry returned the digest %s instead", r.root.Digest)
	}
	if err != nil {
		if !isAnswer(err) {
			r.client.close() // the next request does not use a connection that is broken
		}
		r.Close()
		return nil, registry.WithoutQueries(wrapUnavailable(fmt.Errorf("%s: %w", named, err)))
	}
	r.root = ocispec.Descriptor{MediaType: r.root.MediaType, Digest: r.root.Digest, Size: r.root.Size}
	return r, nil
}

// isAnswer reports whether err is an answer of a registry, whose connection is therefore intact.
func isAnswer(err error) bool {
	return errors.As(err, new(rerrors.ErrUnexpectedStatus)) || errdefs.IsNotFound(err) || errors.Is(err, docker.ErrInvalidAuthorization)
}

// Root returns the descriptor of the root. A registry can return any descriptor for a tag.
func (r *Remote) Root() ocispec.Descriptor { return r.root }

// Fetch opens a blob or a manifest at an offset. The reader may return any number of bytes, so the caller limits them and verifies the
// digest.
func (r *Remote) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	w := download.NewWatch(ctx, r.service.stall, d.Size) // a registry that ignores the offset sends the whole blob
	d.URLs = nil                                         // a manifest must not name other servers
	body, err := r.fetcher.Fetch(registry.WithProgress(registry.WithReaderLimit(w.Context()), w.Moved), d)
	if err == nil && offset > 0 {
		seeker, ok := body.(io.Seeker)
		if !ok {
			err = fmt.Errorf("%s: the registry cannot resume a download", d.Digest)
		} else {
			_, err = seeker.Seek(offset, io.SeekStart)
		}
	}
	if err != nil {
		w.Stop()
		return nil, registry.WithoutQueries(wrapUnavailable(networkError{err}))
	}
	return w.Body(body), nil
}

// Close closes the connections of this Remote. If they are kept, Close instead closes the connections that were kept for earlier settings.
func (r *Remote) Close() error {
	switch {
	case r.idle == 0:
		r.client.close()
	case len(r.client.kept) > 0: // the settings were read
		r.service.kept.keepOnly(r.client.kept)
	}
	return nil
}

// ReadStored returns a document of an image that is on this node. It returns nil if the node does not have the document.
func (s *Service) ReadStored(ctx context.Context, d ocispec.Descriptor) []byte {
	if d.Size > bundle.MaxDocument {
		return nil
	}
	data, err := readStored(withNamespace(ctx), s.c.Client.ContentStore(), d)
	if err != nil || d.Digest.Algorithm().FromBytes(data) != d.Digest {
		return nil // the caller fetches it
	}
	return data
}
