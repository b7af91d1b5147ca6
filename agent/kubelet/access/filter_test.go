package access_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"

	"github.com/islet-edge/islet/agent/kubelet/access"
	"github.com/islet-edge/islet/agent/kubelet/access/accesstest"
)

// reviewer is a fake control plane that authenticates the token "good". The field allow lists the permitted requests
// as "user verb subresource".
type reviewer struct {
	allow []string
	mu    sync.Mutex
	asked []authz.SubjectAccessReviewSpec
}

func (*reviewer) AuthenticateToken(_ context.Context, token string) (*authn.UserInfo, error) {
	switch token {
	case "good":
		return &authn.UserInfo{Username: "system:serviceaccount:monitoring:prometheus", UID: "u1", Groups: []string{"system:serviceaccounts"},
			Extra: map[string]authn.ExtraValue{"pod": {"p"}}}, nil
	case "down":
		return nil, errors.New("connection refused")
	}
	return nil, nil
}

func (v *reviewer) Authorize(_ context.Context, spec authz.SubjectAccessReviewSpec) (authz.SubjectAccessReviewStatus, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, spec)
	if spec.User == "broken" {
		return authz.SubjectAccessReviewStatus{}, errors.New("no answer")
	}
	a := spec.ResourceAttributes
	return authz.SubjectAccessReviewStatus{Allowed: slices.Contains(v.allow, spec.User+" "+a.Verb+" "+a.Subresource)}, nil
}

// serve starts a TLS server with authentication and authorization. The response to a permitted request contains "passed" and the request's
// Authorization header, which must be empty.
func serve(t *testing.T, c access.Config) *httptest.Server {
	c.NodeName, c.Log = "pi", slog.New(slog.DiscardHandler)
	filter := access.New(c)
	srv := httptest.NewUnstartedServer(filter.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "passed"+r.Header.Get("Authorization"))
	})))
	srv.TLS = filter.TLS(&tls.Config{Certificates: []tls.Certificate{*accesstest.New(t).Server(t)}})
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// This helper sends a request with a certificate, a token, both or neither.
func ask(t *testing.T, srv *httptest.Server, method, path string, cert *tls.Certificate, authorization string) (int, string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if cert != nil { // the client sends its certificate even if the server does not request one
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	req, err := http.NewRequest(method, srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func caFile(t *testing.T, pem []byte) string {
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, pem, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWho(t *testing.T) {
	ca := accesstest.New(t)
	admin, stranger, nameless := ca.Client(t, "admin", "ops"), accesstest.New(t).Client(t, "admin"), ca.Client(t, "")
	server := ca.Server(t)
	file := caFile(t, ca.PEM)
	v := &reviewer{allow: []string{"admin get proxy", "system:serviceaccount:monitoring:prometheus get proxy", "system:anonymous get proxy"}}
	closed := serve(t, access.Config{ClientCAFile: file, Tokens: v, Authorizer: v})
	open := serve(t, access.Config{ClientCAFile: file, Tokens: v, Authorizer: v, Anonymous: true})
	deaf := serve(t, access.Config{Authorizer: v, Anonymous: true})
	for name, c := range map[string]struct {
		srv  *httptest.Server
		cert *tls.Certificate
		auth string
		code int
	}{
		"nothing":                       {srv: closed, code: 401},
		"certificate":                   {srv: closed, cert: admin, code: 200},
		"another authority's":           {srv: closed, cert: stranger, code: 401},
		"without a name":                {srv: closed, cert: nameless, code: 401},
		"a server's":                    {srv: closed, cert: server, code: 401},
		"token":                         {srv: closed, auth: "Bearer good", code: 200},
		"token, small letters":          {srv: closed, auth: "bearer good", code: 200},
		"wrong token":                   {srv: closed, auth: "Bearer bad", code: 401},
		"empty token":                   {srv: closed, auth: "Bearer ", code: 401},
		"basic":                         {srv: closed, auth: "Basic Z29vZDpnb29k", code: 401},
		"nobody to ask":                 {srv: closed, auth: "Bearer down", code: 401},
		"wrong certificate, good token": {srv: closed, cert: stranger, auth: "Bearer good", code: 200},
		"good certificate, wrong token": {srv: closed, cert: admin, auth: "Bearer bad", code: 200},
		"anonymous":                     {srv: open, code: 200},
		"anonymous, wrong token":        {srv: open, auth: "Bearer bad", code: 401},
		"anonymous, wrong certificate":  {srv: open, cert: stranger, code: 401},
		"tokens do not count":           {srv: deaf, auth: "Bearer bad", code: 200},
	} {
		code, body := ask(t, c.srv, "GET", "/run", c.cert, c.auth)
		want := map[int]string{200: "passed", 401: "Unauthorized"}[c.code]
		if code != c.code || body != want {
			t.Errorf("%s: %d %q, want %d %q", name, code, body, c.code, want)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, spec := range v.asked {
		switch spec.User {
		case "admin":
			if !slices.Equal(spec.Groups, []string{"ops", "system:authenticated"}) || len(spec.Extra["authentication.kubernetes.io/credential-id"]) != 1 {
				t.Errorf("of a certificate: %+v", spec)
			}
		case "system:anonymous":
			if !slices.Equal(spec.Groups, []string{"system:unauthenticated"}) {
				t.Errorf("of an anonymous user: %+v", spec)
			}
		default:
			if spec.UID != "u1" || !slices.Contains(spec.Groups, "system:authenticated") || spec.Extra["pod"][0] != "p" {
				t.Errorf("of a token: %+v", spec)
			}
		}
	}
}

func TestWhat(t *testing.T) {
	ca := accesstest.New(t)
	file := caFile(t, ca.PEM)
	v := &reviewer{allow: []string{"fine get pods", "watcher get proxy", "coarse get proxy", "coarse create proxy", "scraper get metrics", "scraper get stats", "reader get log"}}
	srv := serve(t, access.Config{ClientCAFile: file, Authorizer: v})
	users := map[string]*tls.Certificate{}
	for _, name := range []string{"fine", "watcher", "coarse", "scraper", "reader", "broken"} {
		users[name] = ca.Client(t, name)
	}
	for _, c := range []struct {
		user, method, path string
		code               int
		text               string
	}{
		{"fine", "GET", "/pods", 200, ""},
		{"fine", "GET", "/runningpods/", 200, ""},
		{"fine", "GET", "/allocatedPods/default/web", 200, ""},
		{"fine", "GET", "/pods/", 200, ""},
		{"fine", "GET", "/podsies", 403, "Forbidden (user=fine, verb=get, resource=nodes, subresource(s)=[proxy])\n"},
		{"fine", "GET", "/healthz", 403, "Forbidden (user=fine, verb=get, resource=nodes, subresource(s)=[healthz proxy])\n"},
		{"fine", "GET", "/configz", 403, "Forbidden (user=fine, verb=get, resource=nodes, subresource(s)=[configz proxy])\n"},
		{"coarse", "GET", "/pods", 200, ""},
		{"coarse", "GET", "/healthz/syncloop", 200, ""},
		{"coarse", "GET", "/configz", 200, ""},
		{"coarse", "POST", "/exec/ns/pod/c", 200, ""},
		{"coarse", "GET", "/exec/ns/pod/c", 200, ""},
		{"watcher", "GET", "/pods", 200, ""},
		// A WebSocket request has the method GET.
		{"watcher", "GET", "/exec/ns/pod/c", 403, "Forbidden (user=watcher, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"watcher", "GET", "/exec/ns/pod/uid/c", 403, "Forbidden (user=watcher, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"watcher", "GET", "/attach/ns/pod/c", 403, "Forbidden (user=watcher, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"watcher", "GET", "/portForward/ns/pod", 403, "Forbidden (user=watcher, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"watcher", "POST", "/run/ns/pod/c", 403, "Forbidden (user=watcher, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"coarse", "PUT", "/exec/ns/pod/c", 403, "Forbidden (user=coarse, verb=update, resource=nodes, subresource(s)=[proxy])\n"},
		{"coarse", "DELETE", "/x", 403, "Forbidden (user=coarse, verb=delete, resource=nodes, subresource(s)=[proxy])\n"},
		{"coarse", "PATCH", "/x", 403, "Forbidden (user=coarse, verb=patch, resource=nodes, subresource(s)=[proxy])\n"},
		{"coarse", "GET", "/metrics", 403, "Forbidden (user=coarse, verb=get, resource=nodes, subresource(s)=[metrics])\n"},
		{"coarse", "GET", "/logs/syslog", 403, "Forbidden (user=coarse, verb=get, resource=nodes, subresource(s)=[log])\n"},
		{"coarse", "GET", "/flagz", 403, "Forbidden (user=coarse, verb=get, resource=nodes, subresource(s)=[configz])\n"},
		{"scraper", "GET", "/metrics/cadvisor", 200, ""},
		{"scraper", "GET", "/stats/summary", 200, ""},
		{"scraper", "GET", "/stats/flash", 200, ""},
		{"coarse", "GET", "/stats/flash", 403, "Forbidden (user=coarse, verb=get, resource=nodes, subresource(s)=[stats])\n"},
		{"scraper", "GET", "/metrics/../exec/ns/pod/c", 200, ""}, // the mux redirects this path
		{"reader", "GET", "/logs/", 200, ""},
		{"reader", "GET", "/containerLogs/a/b/c", 403, "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[proxy])\n"},
		{"broken", "GET", "/run", 500, "Authorization error (user=broken, verb=get, resource=nodes, subresource=proxy)"},
	} {
		code, body := ask(t, srv, c.method, c.path, users[c.user], "")
		if code != c.code || c.code != 200 && body != c.text {
			t.Errorf("%s %s %s: %d %q, want %d %q", c.user, c.method, c.path, code, body, c.code, c.text)
		}
	}
	for _, spec := range v.asked {
		if a := spec.ResourceAttributes; a.Resource != "nodes" || a.Version != "v1" || a.Name != "pi" || a.Namespace != "" {
			t.Fatalf("the requested authorization is %+v", a)
		}
	}
	if code, _ := ask(t, serve(t, access.Config{ClientCAFile: file, AlwaysAllow: true}), "DELETE", "/x", users["fine"], ""); code != 200 {
		t.Errorf("AlwaysAllow: %d", code)
	}
	if code, _ := ask(t, serve(t, access.Config{ClientCAFile: file}), "GET", "/pods", users["fine"], ""); code != 403 {
		t.Errorf("without an authorizer: %d", code)
	}
}

// TestAuthoritiesChange checks that a changed file of client CAs is read again. If the file is invalid or missing, the previous CAs stay in
// use.
func TestAuthoritiesChange(t *testing.T) {
	first, second := accesstest.New(t), accesstest.New(t)
	one, two := first.Client(t, "one"), second.Client(t, "two")
	file := filepath.Join(t.TempDir(), "ca.crt")
	srv := serve(t, access.Config{ClientCAFile: file, AlwaysAllow: true})
	want := func(step string, a, b int) {
		t.Helper()
		gotA, _ := ask(t, srv, "GET", "/", one, "")
		if gotB, _ := ask(t, srv, "GET", "/", two, ""); gotA != a || gotB != b {
			t.Errorf("%s: %d %d, want %d %d", step, gotA, gotB, a, b)
		}
	}
	put := func(data string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	want("no file", 401, 401)
	put(string(first.PEM))
	want("the first", 200, 401)
	put(string(first.PEM) + string(second.PEM))
	want("both", 200, 200)
	put("nonsense")
	want("broken", 200, 200)
	os.Remove(file)
	want("gone", 200, 200)
	put(string(second.PEM))
	want("the second", 401, 200)
}

// TestClock checks that client certificates are verified at the configured clock's time.
func TestClock(t *testing.T) {
	ca := accesstest.New(t)
	cert, file := ca.Client(t, "x"), caFile(t, ca.PEM)
	for _, c := range []struct {
		now  time.Time
		code int
	}{{time.Now(), 200}, {time.Unix(0, 0), 401}, {time.Now().Add(time.Hour), 401}} {
		srv := serve(t, access.Config{ClientCAFile: file, AlwaysAllow: true, Now: func() time.Time { return c.now }})
		if code, _ := ask(t, srv, "GET", "/", cert, ""); code != c.code {
			t.Errorf("at %v: %d, want %d", c.now, code, c.code)
		}
	}
}

func TestNobody(t *testing.T) {
	v := &reviewer{}
	for _, c := range []struct {
		config access.Config
		want   string
	}{
		{access.Config{}, "clientCAFile"},
		{access.Config{ClientCAFile: "x"}, "Webhook"},
		{access.Config{ClientCAFile: "x", AlwaysAllow: true}, ""},
		{access.Config{Anonymous: true, AlwaysAllow: true}, ""},
		{access.Config{Tokens: v, Authorizer: v}, ""},
		{access.Config{AlwaysAllow: true}, "clientCAFile"},
	} {
		if got := access.New(c.config).WhyNobody(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}
