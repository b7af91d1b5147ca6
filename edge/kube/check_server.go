package kube

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// ErrNotServer means that the answer did not come from an API server. It came, for example, from a captive portal, a proxy with a login
// page, or a web server.
var ErrNotServer = errors.New("this is not an API server")

// checkServer returns an error if an answer cannot come from an API server. An API server never answers this client with a web page or a
// redirect. checkServer accepts the error page of a load balancer (status 5xx or 429). Such a page only means that the API server is not
// ready.
func checkServer(resp *http.Response) error {
	switch {
	case resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusTooManyRequests:
		return nil
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest &&
		resp.StatusCode != http.StatusNotModified:
		return fmt.Errorf("%w: it answers %d with a redirect, as a captive portal or a proxy does", ErrNotServer, resp.StatusCode)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/html" || kind == "application/xhtml+xml" {
		return fmt.Errorf("%w: it answers %d with a web page, as a captive portal or a proxy does", ErrNotServer, resp.StatusCode)
	}
	return nil
}

// readyAnswer is the body with which a ready API server answers /readyz. See
// https://kubernetes.io/docs/reference/using-api/health-checks/.
const readyAnswer = "ok"

// isReady returns an error if the body of a successful answer to /readyz is not readyAnswer.
func isReady(resp *http.Response) error {
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(body)) != readyAnswer {
		return fmt.Errorf("%w: the answer to /readyz is %.20q, not %q", ErrNotServer, body, readyAnswer)
	}
	return nil
}
