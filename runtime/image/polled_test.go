package image

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/registry"
)

// A counter counts the connections that a server has accepted, and the bytes that it has read from them.
type counter struct {
	net.Listener
	conns, in atomic.Int64
}

func (c *counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	c.conns.Add(1)
	return countedConn{conn, &c.in}, err
}

type countedConn struct {
	net.Conn
	in *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.Add(int64(n))
	return n, err
}

// serveCounted serves a registry at an address whose connections are counted, and writes the settings for it.
func serveCounted(t *testing.T, h http.Handler, certs string, tls bool) (s *httptest.Server, c *counter, host string) {
	t.Helper()
	s = httptest.NewUnstartedServer(h)
	c = &counter{Listener: s.Listener}
	s.Listener = c
	host = c.Addr().String()
	settings := fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", host)
	if tls {
		s.StartTLS()
		settings = strings.ReplaceAll(settings, "http:", "https:") + "  ca = \"ca.crt\"\n"
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		writeFile(t, filepath.Join(certs, host, "ca.crt"), ca)
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	writeFile(t, filepath.Join(certs, host, "hosts.toml"), []byte(settings))
	return s, c, host
}

// TestPolledRegistry counts the connections of a node that follows a bundle in a registry which has nothing new, and the bytes of its
// requests. The connection is kept. It is replaced after the registry has closed it, and after the settings of the registry have changed.
// Without a followed source, no connection is left.
func TestPolledRegistry(t *testing.T) {
	hub := newServer(t, false)
	a := layeredBundle(t, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), 1, 1000, 1000)
	if err := remote.Push(t.Context(), a, remote.Scheme+hub.host(t)+"/kiosk:stable", registry.Config{}); err != nil {
		t.Fatal(err)
	}
	const polls = 5
	for name, c := range map[string]struct {
		tls   bool
		idle  time.Duration
		conns int64 // that the polls open
	}{
		"followed":          {false, time.Hour, 0},
		"followed with TLS": {true, time.Hour, 0},
		"not followed":      {false, 0, polls},
	} {
		t.Run(name, func(t *testing.T) {
			certs := t.TempDir()
			server, count, host := serveCounted(t, hub.Config.Handler, certs, c.tls)
			s := newService(t, func(c *Config) { c.CertsDir = certs })
			o := feed.NewOpener(feed.Config{
				OpenRepository: func(ctx context.Context, ref string, auth *api.AuthConfig) (feed.Repository, error) {
					return s.OpenRemote(ctx, ref, auth, c.idle)
				},
			})
			from := remote.Scheme + host + "/kiosk:stable"
			l, v, err := o.Open(t.Context(), feed.Request{From: from, Tell: func(string, int64, int64) {}})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			check := func(what string, want int64) {
				t.Helper()
				conns, in := count.conns.Load(), count.in.Load()
				for range polls {
					if _, _, err := o.Open(t.Context(), feed.Request{From: from, Last: v}); !errors.Is(err, feed.ErrSame) {
						t.Fatalf("%s: %v", what, err)
					}
				}
				if got := count.conns.Load() - conns; got != want {
					t.Errorf("%s: %d connections for %d requests, want %d", what, got, polls, want)
				}
				if size := (count.in.Load() - in) / polls; !c.tls && size > 150 {
					t.Errorf("%s: a request has %d bytes", what, size)
				}
			}
			check("nothing new", c.conns)
			server.CloseClientConnections()
			check("after the registry has closed the connection", max(c.conns, 1))
			if c.tls {
				writeFile(t, filepath.Join(certs, host, "ca.crt"), otherAuthority(t))
				former := len(s.kept.list)
				if _, _, err := o.Open(t.Context(), feed.Request{From: from, Last: v}); err == nil || errors.Is(err, feed.ErrSame) {
					t.Errorf("the connection of another certificate authority is used: %v", err)
				}
				if n := len(s.kept.list); n != former {
					t.Errorf("%d transports are kept after a change of the settings, before %d", n, former)
				}
			}
		})
	}
}

// pollRegistry makes requests for the root of a bundle, with one client after the other, whose connections are kept.
func pollRegistry(t *testing.T, s *Service, ref string, polls int, isWanted func(error) bool) {
	t.Helper()
	for range polls {
		r, err := s.OpenRemote(t.Context(), ref, nil, time.Hour)
		if !isWanted(err) {
			t.Fatal(err)
		}
		if err == nil {
			r.Close()
		}
	}
}

// TestPolledMirrors counts the connections of a node that follows a bundle in a registry with mirrors which do not have it. Each host has
// one connection, with and without its own settings.
func TestPolledMirrors(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	certs := t.TempDir()
	var hosts []*counter
	settings := ""
	for i := range 4 {
		handler := hub.Config.Handler
		if i < 3 {
			handler = http.NotFoundHandler()
		}
		_, count, host := serveCounted(t, handler, certs, false)
		hosts = append(hosts, count)
		settings += fmt.Sprintf("[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", host)
		if i == 0 {
			settings += "  dial_timeout = \"10s\"\n"
		}
	}
	writeFile(t, filepath.Join(certs, "registry.example", "hosts.toml"), []byte(settings))
	s := newService(t, func(c *Config) { c.CertsDir = certs })
	pollRegistry(t, s, "registry.example/demo:1", 5, func(err error) bool { return err == nil })
	for i, c := range hosts {
		if n := c.conns.Load(); n != 1 {
			t.Errorf("host %d: %d connections", i, n)
		}
	}
	s.kept.keepOnly(nil)
}

// TestPolledErrors counts the connections of a node that follows a bundle in a registry which answers each request with an error. Such an
// answer does not close the connection.
func TestPolledErrors(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError} {
		certs := t.TempDir()
		_, count, host := serveCounted(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }), certs, false)
		s := newService(t, func(c *Config) { c.CertsDir = certs })
		pollRegistry(t, s, host+"/demo:1", 5, func(err error) bool { return err != nil })
		if n := count.conns.Load(); n != 1 {
			t.Errorf("%d: %d connections", status, n)
		}
		s.kept.keepOnly(nil)
	}
}

// TestKeptTransports checks that each client of a registry has its own transport, that new connections use the current settings, and that
// the transport that was not used for the longest time is dropped.
func TestKeptTransports(t *testing.T) {
	var k keptTransports
	find := func(position int, timeout error) *keptTransport {
		return k.find(&http.Transport{TLSClientConfig: &tls.Config{}, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, timeout
		}}, position, time.Hour)
	}
	short, long := errors.New("1s"), errors.New("30s")
	first, second := find(0, long), find(1, short)
	for kept, want := range map[*keptTransport]error{first: long, second: short} {
		if _, err := kept.DialContext(t.Context(), "tcp", ""); !errors.Is(err, want) {
			t.Errorf("it connects with %v, want %v", err, want)
		}
	}
	if again := find(0, short); again != first {
		t.Error("the transport is not used again")
	}
	if _, err := first.DialContext(t.Context(), "tcp", ""); !errors.Is(err, short) {
		t.Errorf("after a change of the settings, it connects with %v", err)
	}
	for i := 1; i < maxKept; i++ {
		find(i+1, long)
	}
	if find(0, short) != first || len(k.list) != maxKept || find(1, short) == second {
		t.Errorf("%d transports are kept, or not those that were used last", len(k.list))
	}
}

// otherAuthority returns a certificate that has signed none of the registries.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
