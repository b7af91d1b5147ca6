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
	// quiet is how long a server may send nothing.
	quiet = time.Minute
	// slowest is the least of bytes a second that a fetch may come with, over all of it.
	slowest = 2 << 10
	// redirects that are followed.
	redirects = 5
	// maxHeaders bounds the headers of an answer, in bytes.
	maxHeaders = 64 << 10
	// Suffix of the release that belongs to an archive.
	Suffix = ".release"
)

// A source opens the archive that somebody names, or its release.
type source struct {
	name   string
	client *http.Client
}

// unreached is an error of the link or of a server: it says nothing of the archive, and may be
// over soon.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// newClient is one that knows the time by now: a board without a clock of its own may have
// another one, by which no certificate is valid.
func newClient(now func() time.Time) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = maxHeaders
	t.TLSClientConfig = &tls.Config{Time: now, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: t}
}

// newSource checks a name: an absolute path, or an https URL. Of this machine itself http
// will do.
func newSource(name string, client *http.Client) (*source, error) {
	if filepath.IsAbs(name) {
		return &source{name: name}, nil
	}
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is neither the absolute path of a file nor an https URL", name)
	}
	if err := allowed(u); err != nil {
		return nil, err
	}
	c := *client
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > redirects {
			return fmt.Errorf("more than %d redirections", redirects)
		}
		return allowed(r.URL)
	}
	return &source{name, &c}, nil
}

// allowed says whether a URL may be asked.
func allowed(u *url.URL) error {
	switch ip := net.ParseIP(u.Hostname()); {
	case u.Scheme == "https":
	case u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
	default:
		return fmt.Errorf("%s: only https is asked", u.Redacted())
	}
	return nil
}

// release reads what the makers say of the archive.
func (s *source) release(ctx context.Context) (*release.Release, error) {
	ctx, stop := context.WithTimeout(ctx, quiet)
	defer stop()
	if s.client == nil { // what is no archive has no release either, which would say less
		f, err := regular.Open(s.name)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	in, err := s.open(ctx, s.name+Suffix)
	if err != nil {
		return nil, fmt.Errorf("the release, which has to lie beside the archive: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, release.MaxText+1))
	if err != nil {
		return nil, unreached{fmt.Errorf("%s%s: %w", s.name, Suffix, err)}
	}
	r, err := release.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", s.name, Suffix, err)
	}
	return r, nil
}

// archive fetches the archive into a file.
func (s *source) archive(ctx context.Context, r *release.Release, file string, tell Tell) error {
	ctx, stop := context.WithTimeout(ctx, quiet+time.Duration(r.Size/slowest)*time.Second)
	defer stop()
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	late := time.AfterFunc(quiet, func() { silent(fmt.Errorf("nothing came for %s", quiet)) })
	defer late.Stop()
	tell.say("downloading", 0, r.Size)
	in, err := s.open(ctx, s.name)
	if err != nil {
		return err
	}
	defer in.Close()
	w := &watched{Reader: in, late: late, tell: tell, size: r.Size}
	if err := r.Save(w, file); err != nil {
		if why := context.Cause(ctx); why != nil {
			err = errors.Join(why, err)
		}
		err = fmt.Errorf("%s: %w", s.name, err)
		if w.broke {
			err = unreached{err}
		}
		return err
	}
	return nil
}

// watched puts a timer off, and tells, whenever something comes.
type watched struct {
	io.Reader
	late      *time.Timer
	tell      Tell
	got, size int64
	broke     bool // it ended with an error
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if n > 0 {
		w.late.Reset(quiet)
		w.got += int64(n)
		w.tell.say("downloading", w.got, w.size)
	}
	w.broke = err != nil && err != io.EOF
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
		return nil, unreached{err}
	}
	if a.StatusCode != http.StatusOK {
		a.Body.Close()
		return nil, unreached{fmt.Errorf("%s: %s", name, a.Status)}
	}
	return a.Body, nil
}

// short is a name without a query, for messages.
func short(name string) string {
	name, _, _ = strings.Cut(name, "?")
	return name
}
