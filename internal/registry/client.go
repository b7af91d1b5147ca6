package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/islet-edge/islet/internal/podspec"
)

// ErrStalled is the error of a transfer that makes no progress.
var ErrStalled = errors.New("the registry sends no data")

var errSlow = fmt.Errorf("the registry is slower than %d bytes per second", minRate)

const (
	// defaultStall is the default of Config.Stall.
	defaultStall = time.Minute
	// minRate is the minimum average rate of a transfer, in bytes per second. graceStall is the number of stall times that the first bytes
	// may take. A transfer may exceed the duration that minRate gives by twice that time.
	minRate    = 4 << 10
	graceStall = 3
)

// A Config configures a Client.
type Config struct {
	// Secrets returns the user and password for a repository, or "" and an identity token, or two empty strings. It may be nil.
	Secrets func(repository string) (user, secret string, err error)
	Stall   time.Duration // a request without progress fails after this time; 0 means a minute
}

// A Client reads one repository of a registry and writes to it. It uses TLS, except for a registry on this machine (localhost).
type Client struct {
	repository string
	object     string // tag or @digest
	stall      time.Duration
	http       *http.Client
	resolver   remotes.Resolver
}

// New returns a client for a complete reference, such as registry.example.com/team/kiosk:42. It makes no request.
func New(ref string, c Config) (*Client, error) {
	if err := podspec.CheckComplete(ref); err != nil {
		return nil, err
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, err
	}
	r := &Client{repository: reference.TrimNamed(named).Name(), object: objectOf(named), stall: c.Stall}
	if r.stall == 0 {
		r.stall = defaultStall
	}
	dialer := net.Dialer{Timeout: r.stall}
	r.http = &http.Client{Transport: transport{&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: r.stall, ForceAttemptHTTP2: true,
		ResponseHeaderTimeout: r.stall, MaxResponseHeaderBytes: MaxHeader, MaxIdleConnsPerHost: 4, IdleConnTimeout: r.stall,
	}}}
	secrets := func(string) (string, string, error) { return "", "", nil }
	if c.Secrets != nil {
		secrets = func(string) (string, string, error) { return c.Secrets(r.repository) }
	}
	r.resolver = docker.NewResolver(docker.ResolverOptions{Hosts: RestrictHosts(r.hosts, secrets,
		func(string) string { return "" }, func(http.RoundTripper) bool { return true })})
	return r, nil
}

// withoutLog returns a context with a logger that discards everything. Otherwise containerd logs to the standard error, even errors that it
// also returns.
func withoutLog(ctx context.Context) context.Context {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return log.WithLogger(ctx, logrus.NewEntry(l))
}

// objectOf returns the tag with its colon, or the digest with its @.
func objectOf(named reference.Named) string {
	return strings.TrimPrefix(named.String(), reference.TrimNamed(named).String())
}

// hosts implements docker.RegistryHosts.
func (c *Client) hosts(name string) ([]docker.RegistryHost, error) {
	address, err := docker.DefaultHost(name)
	if err != nil {
		return nil, err
	}
	scheme := "https"
	if local, err := docker.MatchLocalhost(name); err == nil && local {
		scheme = "http"
	}
	return []docker.RegistryHost{{Client: c.http, Host: address, Scheme: scheme, Path: "/v2",
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve | docker.HostCapabilityPush}}, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// A transport checks requests and limits responses.
type transport struct{ *http.Transport }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req, err := PrepareRequest(req)
	if err != nil {
		return nil, err
	}
	res, err := t.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := LimitBody(req, res); err != nil {
		return nil, errors.Join(err, res.Body.Close())
	}
	return res, nil
}

// Resolve returns the descriptor of the manifest or index that the reference of the client names. If the reference has no digest, the
// descriptor is not trusted, because a registry can return any descriptor for a tag.
func (c *Client) Resolve(ctx context.Context) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeoutCause(withoutLog(ctx), graceStall*c.stall, ErrStalled)
	defer cancel()
	d, err := c.resolve(ctx)
	return d, c.explain(ctx, err)
}

func (c *Client) resolve(ctx context.Context) (ocispec.Descriptor, error) {
	_, d, err := c.resolver.Resolve(ctx, c.repository+c.object)
	if _, sum, digested := strings.Cut(c.object, "@"); err == nil && digested && d.Digest != digest.Digest(sum) {
		err = fmt.Errorf("the registry returned the digest %s instead", d.Digest)
	}
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, err
}

// Fetch opens a blob or a manifest. The reader returns at most one byte more than the size in the descriptor, so the caller can detect a
// longer blob. The caller verifies the digest, and closes the reader.
func (c *Client) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	w := c.watch(ctx, d.Size)
	d.URLs = nil // a manifest must not name other servers
	fetcher, err := c.resolver.Fetcher(w.ctx, c.repository)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	r, err := fetcher.Fetch(WithReaderLimit(w.ctx), d)
	if err != nil {
		return nil, errors.Join(c.explain(w.ctx, err), w.Close())
	}
	return &watchedReader{r, w, c}, nil
}

// Push writes a blob or a manifest, unless the registry already has it. If tagged is true, a manifest gets the tag of the client, and Push
// then requests the tag, because a server that is not a registry may accept everything. Push calls the function open for the bytes at every
// attempt. It calls the function written after each write, with the number of bytes.
func (c *Client) Push(
	ctx context.Context, d ocispec.Descriptor, tagged bool, open func() (io.ReadCloser, error), written func(int) error,
) error {
	w := c.watch(ctx, d.Size)
	defer w.Close()
	ref := c.repository
	if tagged {
		ref += c.object
	}
	done := make(chan error, 1)
	go func() {
		err := c.push(w, ref, d, open, written)
		if err == nil && tagged {
			err = c.confirm(w.ctx, d.Digest)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return c.explain(w.ctx, err)
	case <-w.ctx.Done(): // containerd's writer may wait forever if its request fails early
		select {
		case err := <-done:
			return c.explain(w.ctx, err)
		case <-time.After(time.Second):
			return c.explain(w.ctx, context.Cause(w.ctx))
		}
	}
}

// confirm returns an error if the tag of the client does not name the given digest.
func (c *Client) confirm(ctx context.Context, want digest.Digest) error {
	d, err := c.resolve(ctx)
	if err == nil && d.Digest != want {
		err = fmt.Errorf("the server accepted %s, but answers with %.100s: it is not a registry, or the tag was written again meanwhile",
			want, d.Digest)
	}
	return err
}

// maxAttempts is the maximum number of attempts to send a blob.
const maxAttempts = 4

func (c *Client) push(
	w *watch, ref string, d ocispec.Descriptor, open func() (io.ReadCloser, error), written func(int) error,
) error {
	pusher, err := c.resolver.Pusher(w.ctx, ref)
	if err != nil {
		return err
	}
	out, err := pusher.Push(w.ctx, d)
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Close()
	for range maxAttempts {
		if err = send(w, out, d, open, written); !errors.Is(err, content.ErrReset) {
			return err
		}
	}
	return err
}

func send(w *watch, out content.Writer, d ocispec.Descriptor, open func() (io.ReadCloser, error), written func(int) error) error {
	in, err := open()
	if err != nil {
		return err
	}
	defer in.Close()
	sum := digest.SHA256.Digester()
	progress := writerFunc(func(b []byte) (int, error) {
		w.moved()
		return len(b), written(len(b))
	})
	n, err := io.Copy(io.MultiWriter(out, sum.Hash(), progress), io.LimitReader(in, d.Size))
	switch {
	case err != nil:
		return err
	case n != d.Size || sum.Digest() != d.Digest:
		return fmt.Errorf("the bytes do not have the digest %s", d.Digest)
	}
	return out.Commit(w.ctx, d.Size, d.Digest)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// explain returns the error for the user. If the context has ended, it is the cause of this end. It contains no secrets of URLs, and advice
// if a login is missing.
func (c *Client) explain(ctx context.Context, err error) error {
	const login = "log in with docker login or podman login"
	status := remoteerrors.ErrUnexpectedStatus{}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case errors.Is(err, docker.ErrInvalidAuthorization):
		err = fmt.Errorf("%w: %s", err, login)
	case !errors.As(err, &status):
	case status.StatusCode == http.StatusUnauthorized, status.StatusCode == http.StatusForbidden:
		err = fmt.Errorf("%w: %s, as a user with access to the repository", err, login)
	case status.StatusCode == http.StatusTooManyRequests:
		err = fmt.Errorf("%w: try again later; some registries allow more requests after a login", err)
	}
	return WithoutQueries(fmt.Errorf("%s: %w", c.repository+c.object, err))
}
