package source

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/edge/manifest"
)

// A server responds with its current content and records the requests.
type server struct {
	mu      sync.Mutex
	answer  http.HandlerFunc
	request []*http.Request
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.request = append(s.request, r)
	s.answer(w, r)
}

func (s *server) serve(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *server) last() *http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.request[len(s.request)-1]
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

func newURL(t testing.TB, n *node, c URLConfig) *URL {
	t.Helper()
	c.Interval, c.Decode, c.Sink, c.Log = time.Second, decode, n, slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := NewURL(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func podList(images ...string) string {
	var items []string
	for _, image := range images {
		name := image[:1]
		items = append(items, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":%q}]}}`, name, image))
	}
	return `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Join(items, ",") + `]}`
}

// TestURLKeepsTheLastGoodSet checks that no error of the server ends a pod.
func TestURLKeepsTheLastGoodSet(t *testing.T) {
	srv := &server{}
	web := httptest.NewServer(srv)
	defer web.Close()
	n := newNode(t)
	u := newURL(t, n, URLConfig{URL: web.URL})
	for _, step := range []struct {
		name   string
		answer http.HandlerFunc
		good   bool
		pods   string
		why    string
	}{
		{"one pod", text(podYAML("a", "a1")), true, "a=a1", ""},
		{"a list", text(podList("a1", "b1")), true, "a=a1 b=b1", ""},
		{"not found", http.NotFound, false, "a=a1 b=b1", "404"},
		{"recovered", text(podList("a1", "b1")), true, "a=a1 b=b1", ""},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, false, "a=a1 b=b1", "204"},
		{"empty", text(""), false, "a=a1 b=b1", "is empty"},
		{"garbage", text("<html>log in to the hotel</html>"), false, "a=a1 b=b1", "not"},
		{"one bad pod", text(strings.Replace(podList("a2", "b2"), `"image":"b2"`, `"imgae":"b2"`, 1)), false, "a=a1 b=b1", "imgae"},
		{"not modified, unasked", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, false,
			"a=a1 b=b1", "304"},
		{"half", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, podList("a2"))
		}, false, "a=a1 b=b1", "unexpected EOF"},
		{"huge", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			for range manifest.MaxSize>>20 + 1 {
				z.Write(make([]byte, 1<<20))
			}
		}, false, "a=a1 b=b1", "3 MiB"},
		{"hung up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "a=a1 b=b1", "EOF"},
		{"another", text(podList("b2")), true, "b=b2", ""},
		{"no pods", text(podList()), true, "", ""},
	} {
		srv.serve(step.answer)
		if good := u.fetchAndDeliver(t.Context()); good != step.good {
			t.Errorf("%s: good %v", step.name, good)
		}
		if n.pods() != step.pods || !strings.Contains(n.problems(), step.why) || (step.why == "") != (n.problems() == "") {
			t.Errorf("%s: have %q and %q", step.name, n.pods(), n.problems())
		}
	}
	web.Close()
	if u.fetchAndDeliver(t.Context()) || !strings.Contains(n.problems(), "refused") {
		t.Error("no server:", n.problems())
	}
}

func TestURLAsksConditionally(t *testing.T) {
	srv := &server{}
	modified := time.Date(1970, 1, 1, 0, 0, 1, 0, time.UTC)
	srv.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", modified, strings.NewReader(podList("a1")))
	}
	web := httptest.NewServer(srv)
	defer web.Close()
	n := newNode(t)
	header := http.Header{"X-Token": {"1", "2"}, "Host": {"pods.example"}}
	u := newURL(t, n, URLConfig{URL: web.URL, Header: header})
	for i := range 3 {
		if !u.fetchAndDeliver(t.Context()) || n.pods() != "a=a1" {
			t.Fatal(n.pods(), n.problems())
		}
		r := srv.last()
		if got := r.Header["X-Token"]; len(got) != 2 || r.Host != "pods.example" {
			t.Error(got, r.Host)
		}
		if asked := r.Header.Get("If-None-Match") == `"1"` && r.Header.Get("If-Modified-Since") != ""; asked != (i > 0) {
			t.Error(i, r.Header)
		}
	}
	srv.serve(http.NotFound)
	u.fetchAndDeliver(t.Context())
	srv.serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	if !u.fetchAndDeliver(t.Context()) || n.problems() != "" {
		t.Error("the problem is still reported:", n.problems())
	}
}

func TestURLOverTLS(t *testing.T) {
	srv := &server{answer: text(podList("a1"))}
	web := httptest.NewTLSServer(srv)
	defer web.Close()
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	n := newNode(t)
	if newURL(t, n, URLConfig{URL: web.URL}).fetchAndDeliver(t.Context()) || !strings.Contains(n.problems(), "certificate") {
		t.Error("an unknown certificate authority is trusted:", n.problems())
	}
	trust := web.Client().Transport.(*http.Transport).TLSClientConfig
	if !newURL(t, n, URLConfig{URL: web.URL, TLS: &tls.Config{RootCAs: trust.RootCAs}}).fetchAndDeliver(t.Context()) || n.pods() != "a=a1" {
		t.Error(n.problems())
	}
}

func TestURLFollowsRedirectsCarefully(t *testing.T) {
	target := &server{answer: text(podList("a1"))}
	other := httptest.NewServer(target)
	defer other.Close()
	srv := &server{answer: func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/pods", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			io.WriteString(w, podList("b1"))
		}
	}}
	web, secure := httptest.NewServer(srv), httptest.NewTLSServer(srv)
	defer web.Close()
	defer secure.Close()
	n := newNode(t)
	header := http.Header{"X-Token": {"secret"}}

	if !newURL(t, n, URLConfig{URL: web.URL + "/near", Header: header}).fetchAndDeliver(t.Context()) || srv.last().Header.Get("X-Token") != "secret" {
		t.Error("the own host gets the headers", n.problems())
	}
	away := newURL(t, n, URLConfig{URL: web.URL + "/away?token=secret", Header: header})
	if !away.fetchAndDeliver(t.Context()) || target.last().Header.Get("X-Token") != "" || target.last().Referer() != "" {
		t.Error("another host gets the secret", n.problems())
	}
	if newURL(t, n, URLConfig{URL: web.URL + "/loop"}).fetchAndDeliver(t.Context()) || !strings.Contains(n.problems(), "redirects") {
		t.Error(n.problems())
	}
	trust := secure.Client().Transport.(*http.Transport).TLSClientConfig
	down := newURL(t, n, URLConfig{URL: secure.URL + "/away", TLS: &tls.Config{RootCAs: trust.RootCAs}})
	if down.fetchAndDeliver(t.Context()) || !strings.Contains(n.problems(), "https to http") {
		t.Error(n.problems())
	}
}

func TestURLHidesPasswords(t *testing.T) {
	n := newNode(t)
	u := newURL(t, n, URLConfig{URL: "http://user:secret@127.0.0.1:1/"})
	u.fetchAndDeliver(t.Context())
	if got := n.problems(); strings.Contains(got, "secret") || got == "" {
		t.Error(got)
	}
	for _, bad := range []string{"http://user:secret@[::1/", "ftp://user:secret@h/", "http:///x", ""} {
		if _, err := NewURL(URLConfig{URL: bad, Interval: 1}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Error(bad, err)
		}
	}
}

// A timed is a server without a network, so the bubble's time can advance.
type timed func(*http.Request) (*http.Response, error)

func (f timed) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestURLPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		start, up := time.Now(), time.Minute
		var asked []time.Duration
		u := newURL(t, n, URLConfig{URL: "http://pods.example", Transport: timed(func(r *http.Request) (*http.Response, error) {
			now := time.Since(start)
			asked = append(asked, now)
			if now < up {
				return nil, errors.New("no route to host")
			}
			return &http.Response{StatusCode: 200, Status: "200 OK", Body: io.NopCloser(strings.NewReader(podList("a1")))}, nil
		})})
		u.Interval = 20 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- u.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-ended; err != nil || n.pods() != "a=a1" {
			t.Error(err, n.pods())
		}
		if len(asked) < 3 || asked[2] > 4*time.Second {
			t.Error("the first retries were too slow:", asked)
		}
		for i := 1; i < len(asked); i++ {
			gap := asked[i] - asked[i-1]
			if gap > 20*time.Second || asked[i-1] > up && gap < 18*time.Second {
				t.Error("asked after", gap, asked)
			}
		}
		n.store.Close()
	})
}

func TestSameFailureIsOneProblem(t *testing.T) {
	srv := &server{answer: func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.(*net.TCPConn).SetLinger(0) // a reset, whose error contains both ports
		c.Close()
	}}
	web := httptest.NewServer(srv)
	defer web.Close()
	n := newNode(t)
	u := newURL(t, n, URLConfig{URL: web.URL})
	u.fetchAndDeliver(t.Context())
	first := n.problems()
	for range 3 {
		u.fetchAndDeliver(t.Context())
		if n.problems() != first {
			t.Errorf("%q became %q", first, n.problems())
		}
	}
}

// TestURLBombs checks that endless headers, an endless body and an endless decompressed body are errors.
func TestURLBombs(t *testing.T) {
	n, s := newNode(t), &server{}
	srv := httptest.NewServer(s)
	defer srv.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			c, out, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("a:\r\n", 1<<20) + "\r\n")
			_ = out.Flush()
		},
		"a body": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
		"gzip": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("the request is for %q", r.Header.Get("Accept-Encoding"))
			}
			w.Header().Set("Content-Encoding", "gzip")
			for z := gzip.NewWriter(w); ; {
				if _, err := z.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
		"a manifest": text(`{"apiVersion":"v1","kind":"PodList","items":[` + strings.Repeat("null,", 400_000) + `null]}`),
	} {
		s.serve(answer)
		u := newURL(t, n, URLConfig{URL: srv.URL})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		u.fetchAndDeliver(t.Context())
		runtime.ReadMemStats(&after)
		if got, took := n.problems(), after.TotalAlloc-before.TotalAlloc; got == "" || took > 64<<20 {
			t.Errorf("%s: %.200q with %d MiB", name, got, took>>20)
		}
		u.client.CloseIdleConnections()
	}
}
