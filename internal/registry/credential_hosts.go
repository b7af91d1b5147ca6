package registry

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
)

// An origin is a scheme, a host and a port. A secret is sent to only one origin.
type origin struct{ scheme, host, port string }

func originOf(u *url.URL) origin {
	o := origin{strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()}
	if o.port == "" {
		o.port = map[string]string{"http": "80", "https": "443"}[o.scheme]
	}
	return o
}

// secretHeaders are the headers that authorize a request.
var secretHeaders = [...]string{"Authorization", "Proxy-Authorization", "Cookie", "Cookie2"}

func withoutSecrets(h http.Header) http.Header {
	h = h.Clone()
	for _, key := range secretHeaders {
		h.Del(key)
	}
	return h
}

// An authority is the docker.Authorizer of one registry. It sends the user's secrets only to the
// registry itself and to the token server that the registry names. If the registry redirects to
// another host, the authority requests tokens for that host without secrets.
type authority struct {
	registry  origin
	triesHTTP bool // whether HTTP is tried if the registry does not support TLS
	client    *http.Client
	header    http.Header
	secrets   func(host string) (user, secret string, err error)
	token     string // a fixed token; if it is empty, a token is requested

	mu          sync.Mutex
	authorizers map[origin]docker.Authorizer
}

// RestrictHosts returns hosts with an authority for each registry host. The functions secrets and token return the credentials for a host.
// The function isDirect reports whether a transport never falls back to HTTP.
func RestrictHosts(
	hosts docker.RegistryHosts, secrets func(host string) (user, secret string, err error), token func(host string) string,
	isDirect func(http.RoundTripper) bool,
) docker.RegistryHosts {
	return func(name string) ([]docker.RegistryHost, error) {
		list, err := hosts(name)
		for i := range list {
			h := &list[i]
			h.Authorizer = &authority{
				registry:  originOf(&url.URL{Scheme: h.Scheme, Host: h.Host}),
				triesHTTP: !isDirect(h.Client.Transport),
				client:    h.Client, header: withoutSecrets(h.Header),
				secrets: secrets, token: token(h.Host),
				authorizers: map[origin]docker.Authorizer{},
			}
		}
		return list, err
	}
}

// isRegistry reports whether o is the origin of the registry.
func (a *authority) isRegistry(o origin) bool {
	if a.triesHTTP && o.scheme == "http" && o.host == a.registry.host {
		o.scheme = a.registry.scheme
		if o.port == "80" {
			o.port = a.registry.port
		}
	}
	return o == a.registry
}

// findAuthorizer returns the authorizer for requests to o. Requests to the registry have the same authorizer with and without TLS: a
// request that falls back to HTTP begins as a request with TLS, but its response has a URL without TLS.
func (a *authority) findAuthorizer(o origin) docker.Authorizer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isRegistry(o) {
		o = a.registry
	}
	if a.authorizers[o] == nil {
		opts := []docker.AuthorizerOpt{docker.WithAuthClient(a.client), docker.WithAuthHeader(a.header)}
		switch {
		case a.isRegistry(o) && a.token != "":
			a.authorizers[o] = fixedToken(a.token)
			return a.authorizers[o]
		case a.isRegistry(o):
			opts = append(opts, docker.WithAuthCreds(a.secrets))
		}
		a.authorizers[o] = docker.NewDockerAuthorizer(opts...)
	}
	return a.authorizers[o]
}

// Authorize adds the credentials for the host of req. If req was redirected to another host,
// Authorize removes the credentials of the first host.
func (a *authority) Authorize(ctx context.Context, req *http.Request) error {
	o := originOf(req.URL)
	if !a.isRegistry(o) {
		req.Header = withoutSecrets(req.Header)
	}
	return a.findAuthorizer(o).Authorize(forTokens(ctx, a.registry), req)
}

// AddResponses processes the challenge in a response.
func (a *authority) AddResponses(ctx context.Context, responses []*http.Response) error {
	o := originOf(responses[len(responses)-1].Request.URL)
	return a.findAuthorizer(o).AddResponses(forTokens(ctx, a.registry), responses)
}

// A fixedToken is a docker.Authorizer with a fixed token.
type fixedToken string

// Authorize adds the token.
func (b fixedToken) Authorize(_ context.Context, req *http.Request) error {
	req.Header.Set("Authorization", "Bearer "+string(b))
	return nil
}

// AddResponses returns an error. A call means that the registry rejected the only token.
func (b fixedToken) AddResponses(context.Context, []*http.Response) error {
	return fmt.Errorf("the registry rejected the token: %w", docker.ErrInvalidAuthorization)
}

// tokenRequestKey is the context key of a token request. The value is the registry that needs the token.
type tokenRequestKey struct{}

// forTokens returns a context for token requests for a registry.
func forTokens(ctx context.Context, registry origin) context.Context {
	return context.WithValue(ctx, tokenRequestKey{}, registry)
}

// checkTokenRequest checks a request to a token server. It returns an error if the request would
// send a secret without TLS although the registry uses TLS, or if a redirect would send a secret to
// another host. If a redirected request can work without secrets, the result is the request without
// them.
func checkTokenRequest(req *http.Request) (*http.Request, error) {
	registry, ok := req.Context().Value(tokenRequestKey{}).(origin)
	if !ok {
		return req, nil
	}
	secret := req.Method == http.MethodPost || req.Header.Get("Authorization") != ""
	if secret && registry.scheme == "https" && req.URL.Scheme != "https" {
		return nil, fmt.Errorf("the registry %s requests credentials for %s without TLS: %w",
			registry.host, req.URL.Host, errdefs.ErrPermissionDenied)
	}
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if first == req || originOf(first.URL) == originOf(req.URL) {
		return req, nil
	}
	if req.Method == http.MethodPost {
		return nil, fmt.Errorf("the token server %s redirects credentials to %s: %w",
			first.URL.Host, req.URL.Host, errdefs.ErrPermissionDenied)
	}
	req = req.Clone(req.Context())
	req.Header = withoutSecrets(req.Header)
	return req, nil
}
