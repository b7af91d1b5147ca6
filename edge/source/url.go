package source

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	requestTimeout = 30 * time.Second // timeout of a whole request; a mobile link is slow
	firstRetry     = time.Second
	maxHeaders     = 64 << 10 // maximum size of a response's headers, in bytes
)

// URLConfig contains the dependencies and settings of a URL.
type URLConfig struct {
	URL       string            // http or https (--manifest-url)
	Header    http.Header       // sent only to the host of the URL (--manifest-url-header)
	Interval  time.Duration     // httpCheckFrequency
	Transport http.RoundTripper // the default is a new one, with TLS
	TLS       *tls.Config       // nil for the system's certificate authorities
	Decode    Decode
	Sink      ManifestSink
	Log       *slog.Logger
}

// A URL is the source "http". It reads pods and other objects from a server.
type URL struct {
	URLConfig
	safeURL string // the URL without its password
	client  *http.Client

	validators poll.Validators // of the last valid response
	sum        [sha256.Size]byte
	content
	delivered  bool          // the sink has accepted content
	retryAfter time.Duration // Retry-After of the last response
}

// NewURL validates the configuration.
func NewURL(c URLConfig) (*URL, error) {
	u, err := url.Parse(c.URL)
	var wrong *url.Error // unwrapped, because the text of a url.Error contains the password
	if errors.As(err, &wrong) {
		return nil, fmt.Errorf("manifest URL: %w", wrong.Err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || c.Interval <= 0 {
		return nil, fmt.Errorf("manifest URL %s, checked every %s: an http or https URL and an interval are required", u.Redacted(),
			c.Interval)
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			TLSClientConfig:     c.TLS,
			TLSHandshakeTimeout: requestTimeout / 3,
			ForceAttemptHTTP2:   true,
			MaxIdleConns:        1,

			MaxResponseHeaderBytes: maxHeaders,
			IdleConnTimeout:        2 * c.Interval, // a handshake costs more bytes than a check
		}
	}
	s := &URL{URLConfig: c, safeURL: u.Redacted()}
	s.client = &http.Client{Transport: c.Transport, Timeout: requestTimeout, CheckRedirect: s.checkRedirect}
	return s, nil
}

// Run fetches the manifests immediately, and then at every interval, until ctx ends. After a failure it retries sooner, because the link
// often comes up late after a boot.
func (s *URL) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	pace := poll.NewPace(s.Interval, firstRetry, 0)
	poll.Run(ctx, 0, func(ctx context.Context) time.Duration { return pace.Next(s.fetchAndDeliver(ctx), s.retryAfter) })
	return nil
}

// fetchAndDeliver fetches the manifests and updates the sink. It reports whether both steps succeeded.
func (s *URL) fetchAndDeliver(ctx context.Context) bool {
	all, problems, err := s.fetch(ctx)
	switch {
	case ctx.Err() != nil:
		return true
	case errors.Is(err, errSame):
		all = s.content
	case err != nil:
		problems = []desired.Problem{{Origin: s.safeURL, Message: stableError(err).Error()}}
	}
	if len(problems) > 0 {
		s.delivered = false
		s.Sink.ReportFailure(desired.HTTP, problems)
		return false
	}
	s.content = all
	if err == nil || !s.delivered { // the manifests have changed, or the last update of the sink failed
		s.delivered = deliver(ctx, s.Sink, desired.HTTP, all, nil) == nil
	}
	return s.delivered
}

// stableError removes the parts of an error that differ between attempts, such as the local port. Repeated errors are therefore the same
// problem, which is logged once.
func stableError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		op.Source = nil
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsTimeout {
		dns.Err = "timeout"
	}
	return err
}

// errSame means that the content is unchanged.
var errSame = errors.New("not modified")

// get requests the manifests. It returns errSame if they are unchanged.
func (s *URL) get(ctx context.Context) (data []byte, header http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, nil, err
	}
	s.retryAfter = 0
	req.Header = s.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	s.validators.AddTo(req.Header)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, nil, err // the error contains the URL without its password
	}
	defer resp.Body.Close()
	s.retryAfter = retry.After(resp.Header.Get("Retry-After"), time.Now(), s.Interval)
	switch {
	case resp.StatusCode == http.StatusNotModified && !s.validators.IsZero():
		return nil, nil, errSame
	case resp.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("the server answered %s", resp.Status)
	}
	data, err = readLimited(resp.Body, "the answer")
	return data, resp.Header, err
}

func (s *URL) fetch(ctx context.Context) (content, []desired.Problem, error) {
	data, header, err := s.get(ctx)
	if err != nil {
		return content{}, nil, err
	}
	sum := sha256.Sum256(data)
	if sum == s.sum {
		return content{}, nil, errSame
	}
	all, problems := parse(s.Decode, data, s.URL, s.safeURL)
	if len(problems) == 0 {
		s.sum = sum
		s.validators = poll.ValidatorsOf(header)
	}
	return all, problems, nil
}

// checkRedirect restricts redirects as download.CheckRedirect does. It removes the configured headers from requests to another host,
// because the headers may contain a secret.
func (s *URL) checkRedirect(req *http.Request, via []*http.Request) error {
	if err := download.CheckRedirect(req, via); err != nil {
		return err
	}
	if download.LeftHost(req, via) {
		for name := range s.Header {
			req.Header.Del(name)
		}
	}
	return nil
}
