package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	password = "open-sesame"
	text     = `{"schemaVersion":2}`
)

// A site is a server that records who sent it the password, in a header or in a body.
type site struct {
	*httptest.Server
	mu     sync.Mutex
	told   []string // the methods and paths of these requests
	asked  int
	answer http.HandlerFunc
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, secret, _ := r.BasicAuth()
		s.mu.Lock()
		s.asked++
		if strings.Contains(secret+string(body)+r.Header.Get("Cookie"), password) {
			s.told = append(s.told, r.Method+" "+r.URL.Path)
		}
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *site) ref() string { return strings.TrimPrefix(s.URL, "http://") + "/team/kiosk:1" }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func challenge(w http.ResponseWriter, scheme string) {
	w.Header().Set("WWW-Authenticate", scheme)
	w.WriteHeader(http.StatusUnauthorized)
}

func manifest(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	w.Header().Set("Docker-Content-Digest", digest.FromString(text).String())
	io.WriteString(w, text)
}

// TestLoginPlaces checks where the login of a registry goes: to the registry itself and to the token server that it names, and nowhere
// else, whatever the registry, its token server and the hosts to which they redirect ask for.
func TestLoginPlaces(t *testing.T) {
	token := func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"token":"t0ken","access_token":"t0ken"}`)
	}
	old := func(get http.HandlerFunc) http.HandlerFunc { // knows only GET
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			get(w, r)
		}
	}
	both := []string{"POST /token", "GET /token"}
	for name, tt := range map[string]struct {
		user                      string // without one, the secret is an identity token
		hub, auth                 http.HandlerFunc
		works                     bool
		hubTold, authTold, others []string // requests with the password; others are those to the third host
	}{
		"basic": {user: "anna", works: true, hubTold: []string{"HEAD /v2/team/kiosk/manifests/1"},
			hub: func(w http.ResponseWriter, r *http.Request) {
				if _, _, ok := r.BasicAuth(); !ok {
					challenge(w, `Basic realm="x"`)
					return
				}
				manifest(w, r)
			}},
		"a token server":                        {user: "anna", works: true, authTold: both[:1], hub: bearer("AUTH/token"), auth: token},
		"an old token server":                   {user: "anna", works: true, authTold: both, hub: bearer("AUTH/token"), auth: old(token)},
		"a token server with an identity token": {works: true, authTold: both[:1], hub: bearer("AUTH/token"), auth: token},
		"an old token server that redirects": {user: "anna", authTold: both, hub: bearer("AUTH/token"), auth: old(redirect("OTHER/token")),
			works: true},
		"a token server that redirects": {user: "anna", authTold: both[:1], hub: bearer("AUTH/token"), auth: redirect("OTHER/token")},
		"a token server that redirects an identity token": {authTold: both[:1], hub: bearer("AUTH/token"),
			auth: redirect("OTHER/token")},
		"a redirect to a host that wants a password": {user: "anna", hub: redirect("OTHER/basic")},
		"a redirect to a host that wants a token":    {user: "anna", hub: redirect("OTHER/bearer"), works: true},
	} {
		t.Run(name, func(t *testing.T) {
			hub, auth, other := newSite(t), newSite(t), newSite(t)
			fill := func(h http.HandlerFunc) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					r = r.WithContext(context.WithValue(r.Context(), placesKey{}, strings.NewReplacer("AUTH", auth.URL, "OTHER", other.URL)))
					h(w, r)
				}
			}
			hub.set(fill(tt.hub))
			if tt.auth != nil {
				auth.set(fill(tt.auth))
			}
			other.set(fill(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/token":
					token(w, r)
				case r.URL.Path == "/basic":
					challenge(w, `Basic realm="x"`)
				case r.Header.Get("Authorization") == "":
					challenge(w, fmt.Sprintf(`Bearer realm="%s/token",service="x"`, other.URL))
				default:
					manifest(w, r)
				}
			}))
			c, err := New(hub.ref(), Config{Secrets: func(repository string) (string, string, error) {
				if want := strings.TrimSuffix(hub.ref(), ":1"); repository != want {
					t.Errorf("the login of %s", repository)
				}
				return tt.user, password, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if d, err := c.Resolve(t.Context()); (err == nil) != tt.works || err == nil && d.Digest != digest.FromString(text) {
				t.Errorf("%+v, %v", d, err)
			}
			for what, got := range map[string][2][]string{
				"the registry": {hub.told, tt.hubTold}, "the token server": {auth.told, tt.authTold}, "the other host": {other.told, nil},
			} {
				if !slices.Equal(slices.Compact(got[0]), got[1]) {
					t.Errorf("%s got the password with %q, want %q", what, got[0], got[1])
				}
			}
		})
	}
}

type placesKey struct{}

// place fills in the hosts of a test.
func place(r *http.Request, text string) string {
	return r.Context().Value(placesKey{}).(*strings.Replacer).Replace(text)
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "login="+password)
		http.Redirect(w, r, place(r, to), http.StatusTemporaryRedirect)
	}
}

func bearer(realm string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			challenge(w, fmt.Sprintf(`Bearer realm="%s",service="x"`, place(r, realm)))
			return
		}
		manifest(w, r)
	}
}

// TestTokenRequests checks which requests to a token server are sent, and whether with the login.
func TestTokenRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		registry, first, url, method string
		err, login                   bool
	}{
		"with TLS":                         {"https://r.example", "", "https://auth.example/t", "GET", false, true},
		"without TLS for one with TLS":     {"https://r.example", "", "http://auth.example/t", "GET", true, false},
		"a form without TLS":               {"https://r.example", "", "http://auth.example/t", "POST", true, false},
		"without TLS for one without":      {"http://r.example", "", "http://auth.example/t", "GET", false, true},
		"a redirect to the same host":      {"https://r.example", "https://auth.example/a", "https://AUTH.example:443/t", "GET", false, true},
		"a redirect to another host":       {"https://r.example", "https://auth.example/a", "https://other.example/t", "GET", false, false},
		"a redirect to another port":       {"https://r.example", "https://auth.example/a", "https://auth.example:444/t", "GET", false, false},
		"a redirect to the registry":       {"https://r.example", "https://auth.example/a", "https://r.example/t", "GET", false, false},
		"a form that is redirected":        {"https://r.example", "https://auth.example/a", "https://other.example/t", "POST", true, false},
		"a form redirected to the host":    {"https://r.example", "https://auth.example/a", "https://auth.example/t", "POST", false, true},
		"a redirect that ends without TLS": {"https://r.example", "https://auth.example/a", "http://auth.example/t", "GET", true, false},
		"no token request":                 {"", "https://auth.example/a", "http://other.example/t", "POST", false, true},
	} {
		ctx := t.Context()
		if tt.registry != "" {
			ctx = forTokens(ctx, parse(t, tt.registry))
		}
		req, err := http.NewRequestWithContext(ctx, tt.method, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Basic x")
		if tt.first != "" {
			first, err := http.NewRequestWithContext(ctx, tt.method, tt.first, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Response = &http.Response{Request: first}
		}
		got, err := PrepareRequest(req)
		if (err != nil) != tt.err || err == nil && (got.Header.Get("Authorization") != "") != tt.login {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err != nil && !errors.Is(err, errdefs.ErrPermissionDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func parse(t *testing.T, text string) origin {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return originOf(u)
}

// TestOrigins checks which hosts are the registry. A registry for which HTTP is tried has the same login without TLS.
func TestOrigins(t *testing.T) {
	for _, tt := range []struct {
		registry, other string
		direct, tries   bool // whether it is the registry if HTTP is not tried, and if it is
	}{
		{"https://r.example", "https://R.EXAMPLE:443", true, true},
		{"http://r.example", "http://r.example:80", true, true},
		{"https://r.example", "http://r.example", false, true},
		{"https://r.example:5000", "http://r.example:5000", false, true},
		{"https://r.example:5000", "http://r.example", false, true}, // a proxy may have left out the port
		{"https://r.example", "http://r.example:5000", false, false},
		{"https://r.example", "https://r.example:5000", false, false},
		{"https://r.example", "https://r.example.evil", false, false},
		{"https://r.example", "https://x.r.example", false, false},
		{"http://r.example", "https://r.example", false, false},
		{"https://[2001:db8::1]", "https://[2001:DB8::1]:443", true, true},
		{"https://r.example", "https://r.example@evil.example", false, false},
	} {
		for _, tries := range []bool{false, true} {
			a := &authority{registry: parse(t, tt.registry), triesHTTP: tries}
			if want := tt.direct && !tries || tt.tries && tries; a.isRegistry(parse(t, tt.other)) != want {
				t.Errorf("%s is %s: %v, want %v (HTTP is tried: %v)", tt.other, tt.registry, !want, want, tries)
			}
		}
	}
}

// TestFixedToken checks that only the registry gets its fixed token, and that nothing is requested when it is rejected.
func TestFixedToken(t *testing.T) {
	hosts := func(string) ([]docker.RegistryHost, error) {
		h := http.Header{"Authorization": {"x"}, "User-Agent": {"islet"}}
		return []docker.RegistryHost{{Scheme: "https", Host: "r.example", Client: http.DefaultClient, Header: h}}, nil
	}
	list, err := RestrictHosts(hosts, nil, func(host string) string { return host + "-token" },
		func(http.RoundTripper) bool { return true })("r.example")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	for address, want := range map[string]string{
		"https://r.example/v2/": "Bearer r.example-token", "https://cdn.example/": "", "http://r.example/": "",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Cookie", "c")
		if address != "https://r.example/v2/" {
			req.Header.Set("Authorization", "Bearer r.example-token") // a redirect keeps it
		}
		if err := list[0].Authorizer.Authorize(t.Context(), req); err != nil || req.Header.Get("Authorization") != want {
			t.Errorf("%s: %q, %v", address, req.Header, err)
		}
		if want == "" && req.Header.Get("Cookie") != "" {
			t.Errorf("%s gets the cookie", address)
		}
		err = list[0].Authorizer.AddResponses(t.Context(), []*http.Response{{Request: req, StatusCode: 401}})
		if want != "" && !errors.Is(err, docker.ErrInvalidAuthorization) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestLimits checks the maximum length of each kind of response, and which content encodings are accepted.
func TestLimits(t *testing.T) {
	plain := t.Context()
	for name, tt := range map[string]struct {
		ctx      context.Context
		encoding []string
		size     int64
		err      bool // of LimitBody
		most     int64
	}{
		"a manifest":             {plain, nil, MaxManifest + 1, false, MaxManifest + 1},
		"a long manifest":        {plain, nil, MaxManifest + 2, false, MaxManifest + 1},
		"a token":                {forTokens(plain, origin{}), nil, maxToken, false, maxToken},
		"a long token":           {forTokens(plain, origin{}), nil, maxToken + 1, false, maxToken},
		"a token for a layer":    {forTokens(WithReaderLimit(plain), origin{}), nil, maxToken + 1, false, maxToken},
		"a layer":                {WithReaderLimit(plain), nil, 2 * MaxManifest, false, 2 * MaxManifest},
		"gzip":                   {plain, []string{"GZIP"}, 10, false, 10},
		"identity":               {plain, []string{" identity ,"}, 10, false, 10},
		"zstd":                   {plain, []string{"zstd"}, 10, true, 0},
		"deflate for a layer":    {WithReaderLimit(plain), []string{"deflate"}, 10, true, 0},
		"gzip twice":             {plain, []string{"gzip, gzip"}, 10, true, 0},
		"gzip in two headers":    {plain, []string{"gzip", "gzip"}, 10, true, 0},
		"gzip and zstd as lines": {plain, []string{"gzip", "zstd"}, 10, true, 0},
	} {
		req, err := http.NewRequestWithContext(tt.ctx, http.MethodGet, "https://r.example/v2/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res := &http.Response{Header: http.Header{"Content-Encoding": tt.encoding}, Body: io.NopCloser(io.LimitReader(zeros{}, tt.size))}
		if err := LimitBody(req, res); err != nil {
			if !tt.err || !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		n, err := io.Copy(io.Discard, res.Body)
		if tt.err || n != tt.most || (err != nil) != (tt.size > tt.most) && tt.size != tt.most {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	for accept, want := range map[string]string{"zstd;q=1.0, gzip;q=0.8": "gzip", "gzip": "gzip", "": ""} {
		req := httptest.NewRequest(http.MethodGet, "https://r.example/", nil)
		req.Header.Set("Accept-Encoding", accept)
		got, err := PrepareRequest(req)
		if err != nil || got.Header.Get("Accept-Encoding") != want || req.Header.Get("Accept-Encoding") != accept {
			t.Errorf("%q: %+v, %v", accept, got, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestAdvice checks that an error names the repository and what to do, and has no query of a URL.
func TestAdvice(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a login is missing":  {func(w http.ResponseWriter, _ *http.Request) { challenge(w, `Basic realm="x"`) }, "docker login"},
		"no challenge":        {status(http.StatusUnauthorized), "docker login"},
		"no access":           {status(http.StatusForbidden), "docker login"},
		"too many requests":   {status(http.StatusTooManyRequests), "try again later"},
		"a server that fails": {status(http.StatusInternalServerError), "500"},
		"a token server that refuses": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			challenge(w, fmt.Sprintf(`Bearer realm="http://%s/token?s3cr3t=1",service="x"`, r.Host))
		}, "docker login"},
		"redirects without end": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/v2/x?s3cr3t=1?s3cr3t=2")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "redirects"},
		"a redirect to nobody": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/x?s3cr3t=1", http.StatusTemporaryRedirect)
		}, "refused"},
		"a long manifest": {func(w http.ResponseWriter, _ *http.Request) { io.CopyN(w, zeros{}, MaxManifest+2) }, "bytes"},
	} {
		s := newSite(t)
		s.set(tt.answer)
		c, err := New(s.ref(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Resolve(t.Context())
		c.Close()
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.ref()) ||
			strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPush checks uploads that a server accepts but does not keep, that have other bytes than their digest, and that make no progress.
func TestPush(t *testing.T) {
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(text), Size: int64(len(text))}
	const stall = 200 * time.Millisecond
	kept := func(keep bool) http.HandlerFunc {
		has := false
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPut:
				has = true
				w.WriteHeader(http.StatusCreated)
			case has && keep:
				manifest(w, r)
			case has && r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/html")
				io.WriteString(w, "welcome")
			case !has:
				w.WriteHeader(http.StatusNotFound)
			}
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		text   string
		want   string // in the error; "" means success
	}{
		"a registry":          {kept(true), text, ""},
		"a server for a page": {kept(false), text, "not a registry"},
		"other bytes":         {kept(true), strings.Replace(text, "2", "3", 1), "the bytes do not have the digest"},
		"fewer bytes":         {kept(true), text[1:], "the bytes do not have the digest"},
		"a server that hangs": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				<-r.Context().Done()
			}
			w.WriteHeader(http.StatusNotFound)
		}, text, "r"},
	} {
		s := newSite(t)
		s.set(tt.answer)
		c, err := New(s.ref(), Config{Stall: stall})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(tt.text)), nil }
		err = c.Push(t.Context(), d, true, open, func(int) error { return nil })
		c.Close()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 50*stall {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// TestIsNetworkError checks that errors of files do not count as errors of connections.
func TestIsNetworkError(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, err := range []error{reset, &url.Error{Op: "Get", Err: reset}, context.DeadlineExceeded, &net.DNSError{}} {
		if !IsNetworkError(fmt.Errorf("pull: %w", err)) {
			t.Errorf("%v is not an error of a connection", err)
		}
	}
	for _, err := range []error{
		nil, io.ErrUnexpectedEOF, syscall.EIO, &os.PathError{Op: "write", Err: syscall.EIO}, &os.LinkError{Op: "link", Err: syscall.ENOENT},
		os.NewSyscallError("setxattr", syscall.EPERM),
	} {
		if IsNetworkError(errors.Join(err)) {
			t.Errorf("%v is an error of a connection", err)
		}
	}
}
