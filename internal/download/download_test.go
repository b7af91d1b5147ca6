package download

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A transport answers requests without a network, so that the clock of a bubble advances.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A slowBody sends one byte at each interval.
type slowBody struct {
	ctx   context.Context
	every time.Duration
}

func (s slowBody) Read(b []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(s.every):
		b[0] = 'x'
		return 1, nil
	}
}

func (slowBody) Close() error { return nil }

// TestSlowServers checks that a server that does not answer, sends nothing, or sends very slowly does not hold a download for ever.
func TestSlowServers(t *testing.T) {
	for name, c := range map[string]struct {
		header, every time.Duration
		want          string
		most          time.Duration
	}{
		"no answer": {time.Hour, 0, "sent nothing", MaxSilence},
		"no body":   {0, time.Hour, "sent nothing", MaxSilence},
		"a drip":    {0, MaxSilence / 2, "too slow", MaxSilence + (1<<20)/minRate*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					select {
					case <-r.Context().Done():
						return nil, r.Context().Err()
					case <-time.After(c.header):
					}
					return &http.Response{StatusCode: 200, Body: slowBody{r.Context(), c.every}}, nil
				})}
				a, err := Get(t.Context(), client, "https://example.com/", nil, 1<<20, http.StatusOK)
				if err == nil {
					_, err = io.Copy(io.Discard, a.Body)
					a.Body.Close()
				}
				if took := time.Since(start); !errors.As(err, new(UnreachableError)) || !strings.Contains(err.Error(), c.want) || took > c.most {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// TestStatus checks that an unexpected status is an error with the wait that the server requests.
func TestStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("User-Agent"); got != "islet" {
			t.Errorf("User-Agent %q", got)
		}
		w.Header().Set("Retry-After", "77")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	var unreachable UnreachableError
	var status StatusError
	_, err := Get(t.Context(), NewClient(time.Now), server.URL, nil, 0, http.StatusOK)
	if !errors.As(err, &unreachable) || unreachable.RetryAfter != 77*time.Second || !errors.As(err, &status) || status.Code != 503 {
		t.Errorf("%#v", err)
	}
}

// TestRedirects checks that a client follows a redirect to another host without the Referer, and follows no redirect to http, to a loop,
// or to another protocol.
func TestRedirects(t *testing.T) {
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Referer() != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("another host gets %v", r.Header)
		}
	}))
	defer other.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, map[string]string{"/away": other.URL, "/http": plain.URL, "/loop": "/loop"}[r.URL.Path], http.StatusFound)
	}))
	defer server.Close()
	client := Restrict(server.Client())
	for path, want := range map[string]string{"/away": "", "/loop": "more than 5", "/http": "https to http"} {
		a, err := Get(t.Context(), client, strings.Replace(server.URL, "://", "://user:secret@", 1)+path+"?token=secret", nil, 0, http.StatusOK)
		if err == nil {
			a.Body.Close()
		}
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "user:secret")) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestCheckURL checks which URLs are allowed.
func TestCheckURL(t *testing.T) {
	for text, want := range map[string]bool{
		"https://example.com/x": true, "http://localhost:80/x": true, "http://[::1]/x": true, "http://127.0.0.1/x": true,
		"http://example.com/x": false, "ftp://example.com/x": false, "https:///x": false, "http://127.0.0.1.example.com/": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckURL(u); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		} else if err != nil && u.Host != "" && !strings.Contains(err.Error(), "http URLs of this machine: localhost,") {
			t.Errorf("%s: %v does not say which http URLs are allowed", text, err)
		}
	}
}
