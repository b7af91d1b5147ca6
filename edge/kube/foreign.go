package kube

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// ErrNotServer is the error of a request that something else than an API server answered:
// the page of a captive portal, of a proxy that wants a login, or of a web server.
var ErrNotServer = errors.New("this is not an API server")

// foreign returns an error when an answer cannot be an API server's: no request of this
// client is answered with a web page, or with the way to another server. An error page of a
// load balancer whose API servers are down is the answer of one that is not ready.
func foreign(resp *http.Response) error {
	switch {
	case resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusTooManyRequests:
		return nil
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest && resp.StatusCode != http.StatusNotModified:
		return fmt.Errorf("%w: it answers %d and leads elsewhere, as a captive portal or a proxy does", ErrNotServer, resp.StatusCode)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/html" || kind == "application/xhtml+xml" {
		return fmt.Errorf("%w: it answers %d with a web page, as a captive portal or a proxy does", ErrNotServer, resp.StatusCode)
	}
	return nil
}

// readyAnswer is the whole answer of an API server that is ready.
// https://kubernetes.io/docs/reference/using-api/health-checks/
const readyAnswer = "ok"

// isReady returns an error when the body of a good answer to /readyz is not an API
// server's.
func isReady(resp *http.Response) error {
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, 64))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(said)) != readyAnswer {
		return fmt.Errorf("%w: asked whether it is ready it says %.20q and not %q", ErrNotServer, said, readyAnswer)
	}
	return nil
}
