package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"time"

	"github.com/islet-edge/islet/internal/retry"
)

const (
	// MaxSilence is the maximum time for which a server may send nothing.
	MaxSilence = time.Minute
	// minRate is the minimum average rate of a response, in bytes per second.
	minRate = 2 << 10
	// maxRetryAfter limits the delay that a server requests.
	maxRetryAfter = 24 * time.Hour
)

// An UnreachableError means that the network link or a server has failed. The failure may be temporary, and does not mean that the file
// is invalid.
type UnreachableError struct {
	Err        error
	RetryAfter time.Duration // the delay that the server requests, or 0
}

func (u UnreachableError) Error() string { return u.Err.Error() }
func (u UnreachableError) Unwrap() error { return u.Err }

// A StatusError is a response with an unexpected status. It is wrapped in an UnreachableError.
type StatusError struct {
	Code   int
	Status string
	Path   string // of the URL that answered, after redirects; Get sets it
}

func (s StatusError) Error() string { return "the server answered " + s.Status }

// Get requests a URL, with additional headers, which may be nil. It returns an UnreachableError unless the server answers with one of the
// given statuses. The body of the response ends with an UnreachableError if the server sends nothing for MaxSilence, or if it takes longer
// than a body of size bytes may take. The caller closes the body, and limits the number of bytes that it reads.
func Get(ctx context.Context, c *http.Client, url string, header http.Header, size int64, statuses ...int) (*http.Response, error) {
	w := NewWatch(ctx, MaxSilence, size)
	q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, url, nil)
	if err != nil {
		w.Stop()
		return nil, err
	}
	q.Header.Set("User-Agent", "islet")
	for name, values := range header {
		q.Header[name] = values
	}
	a, err := c.Do(q)
	if err != nil {
		if wrong := (*neturl.Error)(nil); errors.As(err, &wrong) {
			err = wrong.Err // the query of the URL may be a secret
		}
		err = UnreachableError{Err: w.Explain(err)}
		w.Stop()
		return nil, err
	}
	a.Body = w.Body(a.Body)
	for _, s := range statuses {
		if a.StatusCode == s {
			return a, nil
		}
	}
	a.Body.Close()
	wrong := StatusError{Code: a.StatusCode, Status: a.Status, Path: AnsweredPath(a)}
	return nil, UnreachableError{wrong, retry.After(a.Header.Get("Retry-After"), time.Now(), maxRetryAfter)}
}

// AnsweredPath returns the path of the URL that sent a response, after redirects. It is empty if it is unknown.
func AnsweredPath(a *http.Response) string {
	if a.Request == nil {
		return ""
	}
	return a.Request.URL.Path
}

// A Watch cancels the context of a transfer that makes no progress, or takes too long.
type Watch struct {
	ctx          context.Context
	cancel       context.CancelCauseFunc
	silence      time.Duration
	silent, late *time.Timer
}

// NewWatch starts the watch of a transfer that may make no progress for the time silence, and that has size bytes. The caller calls Stop.
func NewWatch(ctx context.Context, silence time.Duration, size int64) *Watch {
	w := &Watch{silence: silence}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.silent = time.AfterFunc(silence, func() { w.cancel(fmt.Errorf("the server sent nothing for %s", silence)) })
	w.late = time.AfterFunc(w.longest(size), func() { w.cancel(errors.New("the server is too slow")) })
	return w
}

// longest returns the maximum duration of a transfer.
func (w *Watch) longest(size int64) time.Duration {
	return w.silence + time.Duration(size/minRate)*time.Second
}

// Context returns the context of the transfer.
func (w *Watch) Context() context.Context { return w.ctx }

// Moved records that the transfer makes progress. A reader of Body calls it for each Read.
func (w *Watch) Moved() { w.silent.Reset(w.silence) }

// Extend allows the duration of a transfer of size bytes from now on. It does nothing if r is not a body of this package.
func Extend(r io.Reader, size int64) {
	if b, ok := r.(*body); ok {
		b.watch.late.Reset(b.watch.longest(size))
	}
}

// Body returns a body whose reads the Watch sees. Close stops the Watch.
func (w *Watch) Body(r io.ReadCloser) io.ReadCloser { return &body{r, w} }

// Explain returns the reason why the Watch has cancelled the transfer. Without such a reason, it returns err.
func (w *Watch) Explain(err error) error {
	if cause := context.Cause(w.ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Stop ends the watch and the transfer.
func (w *Watch) Stop() {
	w.silent.Stop()
	w.late.Stop()
	w.cancel(nil)
}

// A body is the body of a response. Its errors are UnreachableErrors.
type body struct {
	io.ReadCloser
	watch *Watch
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.Moved()
	}
	if err != nil && err != io.EOF {
		err = UnreachableError{Err: b.watch.Explain(err)}
	}
	return n, err
}

func (b *body) Close() error {
	b.watch.Stop()
	return b.ReadCloser.Close()
}
