package image

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// TestRegistryTrouble checks which responses of a registry count as ErrRegistryUnavailable. A response about the image itself does not
// count.
func TestRegistryTrouble(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	for name, tt := range map[string]struct {
		answer      func(w http.ResponseWriter)
		unavailable bool
	}{
		"overloaded":        {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, true},
		"out of order":      {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, true},
		"a broken proxy":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, true},
		"connection reset":  {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, true},
		"not for this node": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, false},
		"no such image":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, false},
		"unauthorized":      {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, false},
	} {
		hub.set(func(h *server) {
			h.before = func(w http.ResponseWriter, _ *http.Request) bool { tt.answer(w); return true }
		})
		s.hosts.forget()
		_, err := pull(t.Context(), s, "registry.example/demo:1", nil)
		if err == nil || errors.Is(err, crierrors.ErrRegistryUnavailable) != tt.unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRetryAfter checks that no pull contacts a registry before the time in its Retry-After header has passed.
func TestRetryAfter(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	var requests atomic.Int32
	hub.set(func(h *server) {
		h.before = func(w http.ResponseWriter, _ *http.Request) bool {
			requests.Add(1)
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
	})
	for range 5 {
		_, err := pull(t.Context(), s, "registry.example/demo:1", nil)
		if !errors.Is(err, crierrors.ErrRegistryUnavailable) {
			t.Fatal(err)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("it received %d requests", n)
	}
	hub.set(func(h *server) { h.before = nil })
	_, err := pull(t.Context(), s, "registry.example/demo:1", nil)
	if err == nil || !strings.Contains(err.Error(), "is tried again in") {
		t.Errorf("pulled too early: %v", err)
	}
	if again, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); !ok || again.RetryAfter() <= 0 || again.RetryAfter() > 300*time.Second {
		t.Errorf("the error has no RetryAfter: %v", err)
	}
	s.hosts.forget()
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Error(err)
	}
}

// TestSilentRegistry checks a registry that does not respond. Only the first pull waits for it. If the uplink is down, the wait is short.
func TestSilentRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		h := &pausedHosts{isUplinkDown: down.Load}
		silent := registryTransport{roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), h}
		try := func() (time.Duration, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.example/v2/", nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = silent.RoundTrip(req)
			return time.Since(began), err
		}
		for _, want := range []time.Duration{connectTimeout, 0, 0} {
			took, err := try()
			if network := net.Error(nil); took != want || !errors.As(err, &network) {
				t.Errorf("%v, not %v: %v", took, want, err)
			}
		}
		time.Sleep(noResponsePause)
		down.Store(true)
		for _, want := range []time.Duration{linkDownTimeout, 0} {
			if took, err := try(); took != want || err == nil {
				t.Errorf("%v, not %v: %v", took, want, err)
			}
		}
		h.forget()
		if took, _ := try(); took != linkDownTimeout {
			t.Errorf("after the network changed: %v", took)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPullLocalhost checks that a registry on this host can be used without TLS and without configuration.
func TestPullLocalhost(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	s := newService(t, nil)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(hub.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1", "localhost"}
	if l, err := net.Listen("tcp", "[::1]:"+port); err != nil {
		t.Log("without IPv6:", err)
	} else {
		six := &http.Server{Handler: hub.Config.Handler}
		served := make(chan error, 1)
		go func() { served <- six.Serve(l) }()
		defer func() { six.Close(); <-served }()
		hosts = append(hosts, "[::1]")
	}
	for _, host := range hosts {
		if _, err := s.PullImage(t.Context(), &api.PullImageRequest{Image: &api.ImageSpec{Image: host + ":" + port + "/demo:1"}}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func (h *pausedHosts) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused = nil
}
