package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/poll"
)

// ErrSame means that the source still has the bundle that was read last.
var ErrSame = errors.New("the bundle has not changed")

// A Repository is a bundle in a registry. *image.Remote implements it.
type Repository interface {
	Root() ocispec.Descriptor
	// Fetch opens a blob or a manifest at an offset. The reader may return any bytes.
	Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
	Close() error
}

// A Config configures an Opener.
type Config struct {
	Dir       string              // for layers that are being fetched; the Opener creates it when it is needed
	NewClient func() *http.Client // is called once, when the Opener needs a client
	// OpenRepository resolves a reference such as registry.example.com/kiosk:42. The parameter auth may be nil.
	OpenRepository func(ctx context.Context, ref string, auth *api.AuthConfig) (Repository, error)
	// Credentials returns the credentials for a reference, in the order in which they are tried. It may be nil.
	Credentials func(ctx context.Context, ref string) ([]*api.AuthConfig, error)
	// ReadKnown returns a document that the node has already, or nil.
	ReadKnown func(d ocispec.Descriptor) []byte
	// CheckSpace returns an error if the disk has no space for the given number of bytes.
	CheckSpace func(bytes int64) error
	Policy     *format.Policy
}

// An Opener opens bundles on servers. Only one Layout may be open at a time.
type Opener struct {
	c      Config
	client *http.Client
}

// NewOpener returns an Opener. It makes no request.
func NewOpener(c Config) *Opener { return &Opener{c: c} }

// Is reports whether a name is a bundle on a server, and not a path on this machine.
func Is(name string) bool { return strings.Contains(name, "://") }

// Check returns an error unless a name is an https URL, or a complete reference in a registry. An http URL is allowed only for this
// machine itself.
func Check(name string) error {
	if remote.Is(name) {
		return podspec.CheckComplete(strings.TrimPrefix(name, remote.Scheme))
	}
	u, err := parseURL(name)
	if err != nil {
		return err
	}
	return download.CheckURL(u)
}

// parseURL parses a URL. Its errors do not contain the password of the URL.
func parseURL(name string) (*url.URL, error) {
	u, err := url.Parse(name)
	if wrong := (*url.Error)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("the URL of the bundle: %w", wrong.Err)
	}
	return u, err
}

// Redact returns a name without the user, the password and the query of a URL, because each of them may be a token.
func Redact(name string) string {
	u, err := parseURL(name)
	if err != nil {
		return "a URL that is not valid"
	}
	return download.Redact(u)
}

// A Request describes a bundle to open.
type Request struct {
	From string
	Last poll.Validators // of the bundle that was read last; with them, Open returns ErrSame if the source still has it
	// Accept returns an error if the node cannot use a bundle whose signatures are right. It is called before a whole tar is fetched.
	Accept func(*format.Bundle) error
	Tell   func(status string, current, total int64)
}

// Open opens a bundle on a server. It also returns the validators of the bundle that the source has, even if it returns an error. When ctx
// ends, all reads of the Layout fail. A failure of the link or the server is a download.UnreachableError, also in reads of the Layout.
func (o *Opener) Open(ctx context.Context, r Request) (*Layout, poll.Validators, error) {
	l := &Layout{ctx: ctx, c: &o.c, tell: r.Tell, folder: folder{o.c.Dir, o.c.CheckSpace}}
	var v poll.Validators
	err := Check(r.From)
	switch {
	case err != nil:
	case remote.Is(r.From):
		l.remote, v, err = o.openRegistry(ctx, strings.TrimPrefix(r.From, remote.Scheme), r.Last)
	default:
		l.remote, v, err = o.openWeb(ctx, r)
	}
	if err != nil {
		return nil, v, fmt.Errorf("%s: %w", Redact(r.From), err)
	}
	return l, v, nil
}

// A server has the files and blobs of a bundle.
type server interface {
	// readFile reads a file that is not a blob: oci-layout or index.json.
	readFile(ctx context.Context, name string) ([]byte, error)
	// fetch opens a blob at an offset. The reader begins at the returned offset, which is 0 if the server cannot resume.
	fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (r io.ReadCloser, start int64, err error)
	io.Closer
}

// unreachable returns err as an UnreachableError.
func unreachable(err error) error {
	if err == nil || errors.As(err, new(download.UnreachableError)) {
		return err
	}
	return download.UnreachableError{Err: err}
}

// An exactReader is the reader of a blob that a server must not end early.
type exactReader struct {
	io.ReadCloser
	left int64
}

func (r *exactReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.left -= int64(n)
	if err == io.EOF && r.left > 0 {
		err = download.UnreachableError{Err: io.ErrUnexpectedEOF}
	}
	return n, err
}
