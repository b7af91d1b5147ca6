package feed

import (
	"context"
	"errors"
	"io"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
)

// A repository implements server for one repository of a registry.
type repository struct{ Repository }

// openRegistry resolves a reference with the first credentials that the registry accepts. The returned ETag is the digest of the root
// manifest, so openRegistry returns ErrSame if the bundle has not changed.
func (o *Opener) openRegistry(ctx context.Context, ref string, last poll.Validators) (server, poll.Validators, error) {
	auths := []*api.AuthConfig{nil}
	var errs []error
	if o.c.Credentials != nil {
		found, err := o.c.Credentials(ctx, ref)
		if len(found) > 0 {
			auths = found
		}
		errs = append(errs, err)
	}
	for _, auth := range auths {
		r, err := o.c.OpenRepository(ctx, ref, auth)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v := poll.Validators{ETag: r.Root().Digest.String()}
		if v == last {
			return nil, v, errors.Join(ErrSame, r.Close())
		}
		return repository{r}, v, nil
	}
	err := errors.Join(errs...)
	out := download.UnreachableError{Err: err}
	var busy interface{ RetryAfter() time.Duration }
	if errors.As(err, &busy) {
		out.RetryAfter = busy.RetryAfter()
	}
	return nil, poll.Validators{}, out
}

func (r repository) readFile(_ context.Context, name string) ([]byte, error) {
	return remote.ReadFile(r.Root(), name)
}

func (r repository) fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, int64, error) {
	in, err := r.Fetch(ctx, d, offset)
	return in, offset, unreachable(err)
}
