package update

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/release"
)

const (
	// maxSilence is the maximum time for which a server may send nothing.
	maxSilence = time.Minute
	// minRate is the minimum average rate of a fetch, in bytes per second.
	minRate = 2 << 10
	// maxRedirects is the maximum number of redirects of a request.
	maxRedirects = 5
	// maxHeaders is the maximum size of a response's headers, in bytes.
	maxHeaders = 64 << 10
	// Suffix is appended to the name of an archive to form the name of its release.
	Suffix = ".release"
)

// A source reads an archive and its release, from files or from a server.
type source struct {
	name   string
	client *http.Client
}

// An unreachableError means that the network link or a server has failed. The failure may be temporary, and does not mean
// that the archive is invalid.
type unreachableError struct{ error }

func (u unreachableError) Unwrap() error { return u.error }

// newClient returns a client that checks certificates with the clock in the parameter now. The system clock is not
// used, because without a real-time clock it may be so wrong that no certificate seems valid.
func newClient(now func() time.Time) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = maxHeaders
	t.TLSClientConfig = &tls.Config{Time: now, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: t}
}

// newSource returns the source of the archive with the given name: an absolute path or an https URL. An http URL
// is allowed only for this machine itself.
func newSource(name string, client *http.Client) (*source, error) {
	if filepath.IsAbs(name) {
		return &source{name: name}, nil
	}
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is neither the absolute path of a file nor an https URL", name)
	}
	if err := checkURL(u); err != nil {
		return nil, err
	}
	c := *client
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirections", maxRedirects)
		}
		return checkURL(r.URL)
	}
	return &source{name, &c}, nil
}

// checkURL returns an error unless the URL has the scheme https or refers to this machine.
func checkURL(u *url.URL) error {
	switch ip := net.ParseIP(u.Hostname()); {
	case u.Scheme == "https":
	case u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
	default:
		return fmt.Errorf("%s: only https URLs are allowed", u.Redacted())
	}
	return nil
}

// readRelease reads and decodes the release that belongs to the archive.
func (s *source) readRelease(ctx context.Context) (*release.Release, error) {
	ctx, stop := context.WithTimeout(ctx, maxSilence)
	defer stop()
	if s.client == nil { // for a missing archive, this error is clearer than that of a missing release
		f, err := regular.Open(s.name)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	in, err := s.open(ctx, s.name+Suffix)
	if err != nil {
		return nil, fmt.Errorf("the release must be next to the archive: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, release.MaxText+1))
	if err != nil {
		return nil, unreachableError{fmt.Errorf("%s%s: %w", s.name, Suffix, err)}
	}
	r, err := release.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", s.name, Suffix, err)
	}
	return r, nil
}

// fetchArchive downloads or copies the archive to a file.
func (s *source) fetchArchive(ctx context.Context, r *release.Release, file string, tell Progress) error {
	ctx, stop := context.WithTimeout(ctx, maxSilence+time.Duration(r.Size/minRate)*time.Second)
	defer stop()
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	late := time.AfterFunc(maxSilence, func() { silent(fmt.Errorf("the server sent nothing for %s", maxSilence)) })
	defer late.Stop()
	tell.report("downloading", 0, r.Size)
	in, err := s.open(ctx, s.name)
	if err != nil {
		return err
	}
	defer in.Close()
	w := &progressReader{Reader: in, silenceTimer: late, reportProgress: tell, size: r.Size}
	if err := r.Save(w, file); err != nil {
		if why := context.Cause(ctx); why != nil {
			err = errors.Join(why, err)
		}
		err = fmt.Errorf("%s: %w", s.name, err)
		if w.readFailed {
			err = unreachableError{err}
		}
		return err
	}
	return nil
}

// A progressReader restarts a timer and reports progress each time that it has read data.
type progressReader struct {
	io.Reader
	silenceTimer   *time.Timer
	reportProgress Progress
	got, size      int64
	readFailed     bool // the last Read returned an error
}

func (w *progressReader) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if n > 0 {
		w.silenceTimer.Reset(maxSilence)
		w.got += int64(n)
		w.reportProgress.report("downloading", w.got, w.size)
	}
	w.readFailed = err != nil && err != io.EOF
	return n, err
}

func (s *source) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if s.client == nil {
		return regular.Open(name)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("User-Agent", "islet")
	a, err := s.client.Do(q)
	if err != nil {
		return nil, unreachableError{err}
	}
	if a.StatusCode != http.StatusOK {
		a.Body.Close()
		return nil, unreachableError{fmt.Errorf("%s: %s", name, a.Status)}
	}
	return a.Body, nil
}

// withoutQuery returns a URL without its query, for messages.
func withoutQuery(name string) string {
	name, _, _ = strings.Cut(name, "?")
	return name
}
