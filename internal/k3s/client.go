package k3s

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/printable"
)

const (
	// maxAnswer is the maximum size of an answer in bytes. The configuration is the largest one, with a few kilobytes.
	maxAnswer = 1 << 20
	// maxHeaders is the maximum size of the headers of an answer in bytes.
	maxHeaders = 32 << 10
	// requestTime is the timeout of a request. A server computes an scrypt hash of the node's password for each certificate.
	requestTime = 30 * time.Second
	// maxMessage is the maximum length of a server's message in an error.
	maxMessage = 300

	prefix = "/v1-k3s/"
)

// Config contains the settings of a Client.
type Config struct {
	Server string // https://HOST:PORT
	CA     []byte // the certificates that sign the server's certificate, as PEM
	// The client authenticates with Certificate or, if it is nil, with Token.
	Certificate *tls.Certificate
	Token       Token
	// Now returns the time for verifying certificates.
	Now func() time.Time
}

// A Client sends requests to the supervisor of a server.
type Client struct {
	cfg   Config
	pool  *x509.CertPool
	plain *http.Client
}

// A StatusError is an answer that is not a success.
type StatusError struct {
	Code    int
	URL     string
	Message string // of the server; printable and short
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.URL, e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// IsRefused reports whether a server has rejected the credentials or the node's password.
func IsRefused(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && (s.Code == http.StatusUnauthorized || s.Code == http.StatusForbidden)
}

// ParseServer checks the address of a server and returns it without a path.
func ParseServer(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server %q is not a URL", printable.Cut(address, maxMessage))
	case u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "":
		return nil, fmt.Errorf("the server %q is not of the form https://HOST:6443", printable.Cut(address, maxMessage))
	}
	if u.Port() == "" {
		u.Host += ":6443"
	}
	return &url.URL{Scheme: "https", Host: u.Host}, nil
}

// New returns a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	u, err := ParseServer(cfg.Server)
	if err != nil {
		return nil, err
	}
	cfg.Server = u.String()
	c := &Client{cfg: cfg}
	if c.pool, err = poolOf(cfg.CA); err != nil {
		return nil, fmt.Errorf("the CA of %s: %w", cfg.Server, err)
	}
	t := &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12, Time: cfg.Now}
	if cfg.Certificate != nil {
		t.Certificates = []tls.Certificate{*cfg.Certificate}
	}
	c.plain = newHTTP(t)
	return c, nil
}

// newHTTP returns a client that follows no redirect, because a redirect could carry the password of the node elsewhere. It keeps no
// connection, because hours are between two uses.
func newHTTP(t *tls.Config) *http.Client {
	return &http.Client{
		Timeout: requestTime,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, TLSHandshakeTimeout: requestTime, DisableKeepAlives: true,
			DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get requests a path below /v1-k3s/.
func (c *Client) get(ctx context.Context, name string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.Server+prefix+name, nil)
	if err != nil {
		return nil, err
	}
	return c.do(r)
}

// do authenticates and sends a request, and returns the body of the answer.
func (c *Client) do(r *http.Request) ([]byte, error) {
	if c.cfg.Certificate == nil {
		c.cfg.Token.authorize(r)
	}
	return send(c.plain, r)
}

func send(h *http.Client, r *http.Request) ([]byte, error) {
	answer, err := h.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // it repeats the URL and the method
			err = u.Err
		}
		return nil, fmt.Errorf("%s: %w", r.URL, explain(err))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", r.URL, err)
	case answer.StatusCode != http.StatusOK:
		return nil, &StatusError{Code: answer.StatusCode, URL: r.URL.String(), Message: messageOf(body)}
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("%s: the answer has more than %d bytes", r.URL, maxAnswer)
	}
	return body, nil
}

// explain adds the usual reason for an error.
func explain(err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("%w (is the clock of this machine right?)", err)
	}
	return err
}

// messageOf returns the message of a Status, or the beginning of another text.
func messageOf(body []byte) string {
	body = body[:min(len(body), maxAnswer)]
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return printable.Cut(status.Message, maxMessage)
	}
	return printable.Cut(string(bytes.TrimSpace(body[:min(len(body), maxMessage)])), maxMessage)
}

// FetchCA requests the CA of a server. The token must have the CA's hash, unless trust is set. The connection proves nothing, so nothing
// secret is sent on it. The hash proves that the CA belongs to the cluster. Certificates that it does not prove are not part of the result.
func FetchCA(ctx context.Context, server string, t Token, trust bool) ([]byte, error) {
	u, err := ParseServer(server)
	if err != nil {
		return nil, err
	}
	if t.CAHash == "" && !trust {
		return nil, errors.New("the token is short: it has no hash of the cluster's CA, so anybody could pretend to be the server")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String()+"/cacerts", nil)
	if err != nil {
		return nil, err
	}
	bundle, err := send(newHTTP(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}), r) // the hash is checked below
	if err != nil {
		return nil, err
	}
	if t.CAHash != "" {
		bundle, err = t.verify(bundle)
	} else {
		_, _, err = HashCA(bundle)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL, err)
	}
	return bundle, nil
}

// maxCertificates is the maximum number of certificates in a bundle or a chain.
const maxCertificates = 32

// decodeJSON decodes an answer.
func decodeJSON(name string, body []byte, into any) error {
	if err := inputweight.JSON(body, into, maxAnswer); err != nil {
		return fmt.Errorf("%s: %w", path.Base(name), err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: the answer is not valid JSON: %w", path.Base(name), err)
	}
	return nil
}
