package image

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

// origin is a scheme, a host and a port. A secret is for one.
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

// authority is the docker.Authorizer of one registry. The user's secrets go to the
// registry itself and, as the registry asks for it, to its token server. Where the
// registry redirects to, a token is asked for without them.
type authority struct {
	registry origin
	plain    bool // the registry is asked by HTTP, too, if it does not speak TLS
	client   *http.Client
	header   http.Header
	secrets  func(host string) (user, secret string, err error)
	token    string // a ready token instead of one that is asked for

	mu    sync.Mutex
	known map[origin]docker.Authorizer
}

// guardHosts gives each host an authority of its own.
func guardHosts(hosts docker.RegistryHosts, secrets func(string) (string, string, error), token func(host string) string) docker.RegistryHosts {
	return func(name string) ([]docker.RegistryHost, error) {
		list, err := hosts(name)
		for i := range list {
			h := &list[i]
			_, direct := h.Client.Transport.(reach)
			h.Authorizer = &authority{
				registry: originOf(&url.URL{Scheme: h.Scheme, Host: h.Host}),
				plain:    !direct, // containerd's fallback to HTTP is around it
				client:   h.Client, header: withoutSecrets(h.Header),
				secrets: secrets, token: token(h.Host),
				known: map[origin]docker.Authorizer{},
			}
		}
		return list, err
	}
}

// own says whether o is the registry.
func (a *authority) own(o origin) bool {
	if a.plain && o.scheme == "http" && o.host == a.registry.host {
		o.scheme = a.registry.scheme
		if o.port == "80" {
			o.port = a.registry.port
		}
	}
	return o == a.registry
}

// of returns what authorizes requests to o.
func (a *authority) of(o origin) docker.Authorizer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[o] == nil {
		opts := []docker.AuthorizerOpt{docker.WithAuthClient(a.client), docker.WithAuthHeader(a.header)}
		switch {
		case a.own(o) && a.token != "":
			a.known[o] = bearer(a.token)
			return a.known[o]
		case a.own(o):
			opts = append(opts, docker.WithAuthCreds(a.secrets))
		}
		a.known[o] = docker.NewDockerAuthorizer(opts...)
	}
	return a.known[o]
}

// Authorize adds what the host of req is to get. Of a request that was redirected
// to another host it takes what was for the first.
func (a *authority) Authorize(ctx context.Context, req *http.Request) error {
	o := originOf(req.URL)
	if !a.own(o) {
		req.Header = withoutSecrets(req.Header)
	}
	return a.of(o).Authorize(asking(ctx, a.registry), req)
}

// AddResponses takes note of a challenge.
func (a *authority) AddResponses(ctx context.Context, responses []*http.Response) error {
	o := originOf(responses[len(responses)-1].Request.URL)
	return a.of(o).AddResponses(asking(ctx, a.registry), responses)
}

// bearer is a docker.Authorizer with a token that does not change.
type bearer string

// Authorize adds the token.
func (b bearer) Authorize(_ context.Context, req *http.Request) error {
	req.Header.Set("Authorization", "Bearer "+string(b))
	return nil
}

// AddResponses is called when the token was refused: there is no other.
func (b bearer) AddResponses(context.Context, []*http.Response) error {
	return fmt.Errorf("the registry refused the token: %w", docker.ErrInvalidAuthorization)
}

// askingKey is the context key of the registry for which a token is asked.
type askingKey struct{}

// asking marks requests to a token server.
func asking(ctx context.Context, registry origin) context.Context {
	return context.WithValue(ctx, askingKey{}, registry)
}

// guardToken fails for a request to a token server that would carry a secret
// without TLS, though the registry has it, or to where the token server redirects
// to. It takes the secrets from a request that needs none.
func guardToken(req *http.Request) (*http.Request, error) {
	registry, ok := req.Context().Value(askingKey{}).(origin)
	if !ok {
		return req, nil
	}
	secret := req.Method == http.MethodPost || req.Header.Get("Authorization") != ""
	if secret && registry.scheme == "https" && req.URL.Scheme != "https" {
		return nil, fmt.Errorf("the registry %s wants credentials to be sent to %s without TLS: %w", registry.host, req.URL.Host, errdefs.ErrPermissionDenied)
	}
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	if first == req || originOf(first.URL) == originOf(req.URL) {
		return req, nil
	}
	if req.Method == http.MethodPost {
		return nil, fmt.Errorf("the token server %s redirects credentials to %s: %w", first.URL.Host, req.URL.Host, errdefs.ErrPermissionDenied)
	}
	req = req.Clone(req.Context())
	req.Header = withoutSecrets(req.Header)
	return req, nil
}
