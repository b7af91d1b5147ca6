package image

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// A slowBody sends a chunk of bytes, whenever its interval has passed.
type slowBody struct {
	ctx  context.Context
	left int
}

const (
	slowInterval = defaultStall * 2 / 3
	slowChunk    = 128 << 10
)

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	sent := b.left % slowChunk // the rest of the chunk
	if sent == 0 {
		select {
		case <-b.ctx.Done():
			return 0, context.Cause(b.ctx)
		case <-time.After(slowInterval):
			sent = slowChunk
		}
	}
	n := min(sent, len(p))
	b.left -= n
	return n, nil
}

func (b *slowBody) Close() error { return nil }

// A wholeServer is a registry that ignores the Range header, and sends all bytes of a blob slowly.
type wholeServer struct{ size int }

func (s wholeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, ContentLength: int64(s.size),
		Body: &slowBody{r.Context(), s.size}}, nil
}

// TestIgnoredRange checks that a download can resume although the registry sends the whole blob again. containerd discards the first bytes,
// which may take longer than a download may take without progress.
func TestIgnoredRange(t *testing.T) {
	const size, offset = 20 * slowChunk, 10 * slowChunk
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("blob"), Size: size}
	for name, open := range map[string]func(context.Context, *Service, remotes.Fetcher) (io.ReadCloser, error){
		"bundle": func(ctx context.Context, s *Service, f remotes.Fetcher) (io.ReadCloser, error) {
			return (&Remote{service: s, fetcher: f}).Fetch(ctx, layer, offset)
		},
		"pull": func(ctx context.Context, s *Service, f remotes.Fetcher) (io.ReadCloser, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			to := &transfer{ref: "x", report: func(cri.ImportProgress) {}}
			r, err := watchedFetcher{f, s, to, cancel}.Fetch(ctx, layer)
			if err == nil {
				_, err = r.(io.Seeker).Seek(offset, io.SeekStart)
			}
			return r, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Service{stall: defaultStall, c: Config{Root: t.TempDir()}}
			synctest.Test(t, func(t *testing.T) {
				client := &http.Client{Transport: registryTransport{wholeServer{size}, &s.hosts}}
				fetcher, err := docker.NewResolver(docker.ResolverOptions{Hosts: func(string) ([]docker.RegistryHost, error) {
					return []docker.RegistryHost{{Client: client, Host: "registry.example", Scheme: "https", Path: "/v2",
						Capabilities: docker.HostCapabilityPull}}, nil
				}}).Fetcher(t.Context(), "registry.example/demo:1")
				if err != nil {
					t.Fatal(err)
				}
				r, err := open(t.Context(), s, fetcher)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if b, err := io.ReadAll(r); err != nil || len(b) != size-offset {
					t.Errorf("%d bytes, %v", len(b), err)
				}
			})
		})
	}
}
