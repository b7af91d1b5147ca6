package download

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	neturl "net/url"
	"time"

	"github.com/islet-edge/islet/internal/retry"
)

// A sendReader is the body of a request. The Watch sees its reads.
type sendReader struct {
	io.Reader
	watch *Watch
}

func (r sendReader) Read(p []byte) (int, error) {
	r.watch.Moved()
	return r.Reader.Read(p)
}

// Post sends a document to a URL. It returns an UnreachableError unless the server answers with a status of success. It follows no
// redirect, so that no other server gets the document. It reads no body of the response.
func Post(ctx context.Context, c *http.Client, url, contentType string, document []byte) error {
	w := NewWatch(ctx, MaxSilence, int64(len(document)))
	defer w.Stop()
	body := func() (io.ReadCloser, error) {
		return io.NopCloser(sendReader{bytes.NewReader(document), w}), nil
	}
	first, err := body()
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(w.ctx, http.MethodPost, url, first)
	if err != nil {
		return err
	}
	q.GetBody, q.ContentLength = body, int64(len(document))
	q.Header.Set("User-Agent", "islet")
	q.Header.Set("Content-Type", contentType)
	direct := *c
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a, err := direct.Do(q)
	if err != nil {
		if wrong := (*neturl.Error)(nil); errors.As(err, &wrong) {
			err = wrong.Err // the query of the URL may be a secret
		}
		return UnreachableError{Err: w.Explain(err)}
	}
	a.Body.Close()
	if a.StatusCode/100 != 2 {
		wrong := StatusError{Code: a.StatusCode, Status: a.Status}
		return UnreachableError{wrong, retry.After(a.Header.Get("Retry-After"), time.Now(), maxRetryAfter)}
	}
	return nil
}
