package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	rerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/islet-edge/islet/internal/registry"
)

// A registryClient is a client of the registry of an image and of its mirrors.
type registryClient struct {
	remotes.Resolver
	clients []*http.Client
	kept    []*keptTransport // that it uses
}

// newRegistry returns a registry. It reads CertsDir on each call, so changes need no restart. If idle is not 0, the connections are kept
// for this duration, also for a later registry. The headers may be nil.
func (s *Service) newRegistry(ctx context.Context, auth *api.AuthConfig, idle time.Duration, headers http.Header) *registryClient {
	r := &registryClient{}
	position := 0 // of a client with its own transport
	o := config.HostOptions{
		UpdateClient: func(c *http.Client) error {
			r.clients = append(r.clients, c)
			if t, ok := c.Transport.(*http.Transport); ok {
				t.MaxResponseHeaderBytes = registry.MaxHeader
				if t.TLSClientConfig != nil {
					t.TLSClientConfig.Time = s.c.Now
				}
				if idle > 0 {
					kept := s.kept.find(t, position, idle)
					r.kept = append(r.kept, kept)
					c.Transport = kept.Transport
				}
				position++
			}
			if _, twice := c.Transport.(registryTransport); !twice {
				c.Transport = registryTransport{c.Transport, &s.hosts}
			}
			return nil
		},
	}
	if s.c.CertsDir != "" {
		o.HostDir = config.HostDirFromRoot(s.c.CertsDir)
	}
	configured := config.ConfigureHosts(ctx, o)
	hosts := registry.RestrictHosts(
		func(host string) ([]docker.RegistryHost, error) { position = 0; return configured(host) },
		func(host string) (string, string, error) { return credentialsFor(auth, host) },
		func(host string) string {
			if isAddressOf(auth.GetServerAddress(), host) {
				return auth.GetRegistryToken()
			}
			return ""
		},
		func(t http.RoundTripper) bool { // containerd wraps the transport if it may fall back to HTTP
			_, direct := t.(registryTransport)
			return direct
		})
	r.Resolver = docker.NewResolver(docker.ResolverOptions{Hosts: hosts, Headers: headers})
	return r
}

// close closes idle connections, which would otherwise stay open.
func (r *registryClient) close() {
	for _, c := range r.clients {
		c.CloseIdleConnections()
	}
}

// credentialsFor returns the credentials for a host: a user and a password, or "" and an identity token. Both results are empty if
// auth is for another host.
func credentialsFor(auth *api.AuthConfig, host string) (user, secret string, err error) {
	if auth == nil || !isAddressOf(auth.ServerAddress, host) {
		return "", "", nil
	}
	switch {
	case auth.Username != "":
		return auth.Username, auth.Password, nil
	case auth.IdentityToken != "":
		return "", auth.IdentityToken, nil
	case auth.Auth != "":
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(auth.Auth))
		if err != nil {
			return "", "", fmt.Errorf("credentials for %s are not base64: %w: %w", host, err, errdefs.ErrInvalidArgument)
		}
		user, secret, ok := strings.Cut(strings.TrimRight(string(b), "\x00"), ":")
		if !ok {
			return "", "", fmt.Errorf("credentials for %s do not have the form user:password: %w", host, errdefs.ErrInvalidArgument)
		}
		return user, secret, nil
	}
	return "", "", nil
}

// isAddressOf reports whether an address in a docker config refers to a host. The address is "", a host, or a URL with a
// path.
func isAddressOf(address, host string) bool {
	if address == "" {
		return true
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	address, _, _ = strings.Cut(address, "/")
	return canonicalHost(address) == canonicalHost(host)
}

// canonicalHost returns the same name for all host names of Docker Hub.
func canonicalHost(host string) string {
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// A networkError is an error of a request to a registry, or of its response. Errors of the disk and of damaged layers are not network
// errors, although some of them have the same types or values, such as io.ErrUnexpectedEOF.
type networkError struct{ error }

func (e networkError) Unwrap() error { return e.error }

// asNetworkError marks an error as a networkError. A nil error and io.EOF, the end of a response, stay as they are.
func asNetworkError(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return networkError{err}
}

// wrapUnavailable wraps err in the CRI's RegistryUnavailable if it is a networkError which means that a registry is unreachable
// or out of order. The kubelet recognizes the error by this name at the beginning of the message.
func wrapUnavailable(err error) error {
	var (
		status rerrors.ErrUnexpectedStatus
		u      *url.Error
	)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, errStalled):
	case !errors.As(err, new(networkError)):
		return err
	case errors.As(err, &status):
		if status.StatusCode < 500 && status.StatusCode != http.StatusTooManyRequests {
			return err
		}
	case registry.IsNetworkError(err), errors.As(err, &u), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
	default:
		return err
	}
	return fmt.Errorf("%w: %w", crierrors.ErrRegistryUnavailable, err)
}
