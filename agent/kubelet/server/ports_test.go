package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"

	"github.com/islet-edge/islet/agent/kubelet/access"
	"github.com/islet-edge/islet/agent/kubelet/access/accesstest"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
	"github.com/islet-edge/islet/internal/api"
)

var quiet = slog.New(slog.DiscardHandler)

func TestPorts(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	n.Log(t, "web-nginx", "one")
	logs := n.Server.Kubelet.SystemLogs
	if err := os.MkdirAll(filepath.Join(logs, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(n.Dir, "secret")
	for path, text := range map[string]string{filepath.Join(logs, "sub", "syslog"): "line\n", secret: "secret"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(secret, filepath.Join(logs, "out")), os.Symlink("sub/syslog", filepath.Join(logs, "in"))); err != nil {
		t.Fatal(err)
	}
	broken := zpages.Check{Name: "syncloop", Check: func(context.Context) error { return errors.New("asleep") }}
	written := func(context.Context) *api.Flash { return &api.Flash{Device: "/dev/mmcblk0", Budget: 7} }
	all := servertest.OpenAPI(t, n.Server)
	plain := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) {
		c.Kubelet = server.Kubelet{}
		c.Checks = []zpages.Check{broken}
		c.Flash = written
	}))
	part := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) { c.Kubelet = server.Kubelet{Debugging: true} }))
	readOnly := "http://" + servertest.Open(t, n.Server.RunReadOnly)
	healthz := "http://" + servertest.Open(t, n.Variant(t, func(c *server.Config) { c.Checks = []zpages.Check{broken} }).RunHealthz)
	const off = "Debug endpoints are disabled."
	for _, c := range []struct {
		where        any // *servertest.API, or the URL of a port without TLS
		method, path string
		code         int
		want         string
	}{
		{all, "GET", "/healthz", 200, "ok"},
		{all, "GET", "/healthz?verbose", 200, "[+]ping ok\n[+]log ok\nhealthz check passed\n"},
		{all, "GET", "/pods", 200, `"kind":"PodList"`},
		{all, "GET", "/runningpods/", 200, `"name":"web"`},
		{all, "GET", "/containerLogs/default/web/nginx", 200, "one\n"},
		{all, "POST", "/run/default/web/nginx?cmd=ls+-l", 200, "ls,-l"},
		{all, "GET", "/configz", 200, `{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1"`},
		{all, "GET", "/configz", 200, `"Authorization":["\u003cmasked\u003e"]`},
		{all, "GET", "/logs/", 200, `<a href="sub/">`},
		{all, "GET", "/logs/sub/syslog", 200, "line\n"},
		{all, "GET", "/logs/in", 200, "line\n"},
		{all, "GET", "/logs/out", 500, ""},
		{all, "GET", "/logs/none", 404, ""},
		{all, "GET", "/logs/..%2fsecret", 404, ""},
		{all, "GET", "/debug/pprof/", 200, "goroutine"},
		{all, "GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{all, "GET", "/debug/pprof/heap?debug=1", 200, "@ heap/1048576"},
		{all, "GET", "/stats/summary", 200, `"nodeName":"pi"`},
		{all, "GET", "/metrics", 200, `kubernetes_build_info{build_date="",compiler="gc",git_commit="",git_tree_state="",git_version="v1.36.3"`},
		{all, "GET", "/metrics", 200, `kubelet_running_containers{container_state="running"} 1`},
		{all, "GET", "/metrics", 200, `kubelet_http_requests_total{long_running="false",method="POST",path="run",server_type="readwrite"} 1`},
		{all, "GET", "/metrics", 200, "process_resident_memory_bytes"},
		{all, "GET", "/metrics", 200, "go_goroutines"},
		{all, "GET", "/metrics/resource", 200, `container_memory_working_set_bytes{container="nginx",namespace="default",pod="web"} 3145728 `},
		{all, "GET", "/metrics/resource", 200, `pod_cpu_usage_seconds_total{namespace="default",pod="web"} `},
		{all, "GET", "/metrics/resource", 200, `container_start_time_seconds{container="nginx",namespace="default",pod="web"} 1`},
		{all, "GET", "/metrics/resource", 200, "\nresource_scrape_error 0\n"},
		{all, "GET", "/metrics/cadvisor", 200, `container_cpu_usage_seconds_total{container="nginx",id="web-nginx"`},
		{all, "GET", "/metrics/probes", 200, "process_start_time_seconds 1"},
		{all, "GET", "/metrics/../exec/default/web/nginx?command=x", 307, "/exec/"},
		{all, "GET", "/islet/v1/status", 404, ""},
		{all, "PUT", "/pods", 405, ""},
		{all, "POST", "/logs/sub/syslog", 405, "Method Not Allowed"},
		{all, "POST", "/containerLogs/default/web/nginx", 405, "Method Not Allowed"},
		{all, "DELETE", "/configz", 405, "Method Not Allowed"},
		{all, "POST", "/metrics", 405, "Method Not Allowed"},
		{readOnly, "PUT", "/metrics/cadvisor", 405, "Method Not Allowed"},
		{plain, "GET", "/pods", 200, "PodList"},
		{plain, "GET", "/metrics/resource", 200, "pod_"},
		{plain, "GET", "/stats/flash", 200, `{"device":"/dev/mmcblk0","budget":7,"today":{`},
		{plain, "POST", "/stats/flash", 405, ""},
		{plain, "GET", "/runningpods/", 405, off},
		{plain, "POST", "/exec/default/web/nginx?command=x&output=1", 405, off},
		{plain, "GET", "/containerLogs/default/web/nginx", 405, off},
		{plain, "GET", "/logs/", 405, off},
		{plain, "GET", "/debug/pprof/heap", 405, off},
		{plain, "GET", "/configz", 404, ""},
		{plain, "GET", "/healthz", 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed"},
		{plain, "GET", "/healthz?exclude=syncloop", 200, "ok"},
		{plain, "GET", "/healthz/syncloop", 500, "internal server error: asleep"},
		{plain, "GET", "/healthz/ping", 200, "ok"},
		{part, "GET", "/logs/", 405, "logs endpoint is disabled."},
		{part, "GET", "/debug/pprof/", 405, "profiling endpoint is disabled."},
		{part, "GET", "/runningpods/", 200, "web"},
		{readOnly, "GET", "/pods", 200, "PodList"},
		{readOnly, "GET", "/stats/summary", 200, "pi"},
		{readOnly, "GET", "/stats/flash", 404, "disk writes are not measured on this node"},
		{readOnly, "GET", "/metrics", 200, `server_type="readonly"`},
		{readOnly, "POST", "/exec/default/web/nginx?command=x&output=1", 405, off},
		{readOnly, "GET", "/containerLogs/default/web/nginx", 405, off},
		{readOnly, "GET", "/configz", 404, ""},
		{readOnly, "GET", "/islet/v1/pods", 404, ""},
		{healthz, "GET", "/healthz", 500, "syncloop failed"},
		{healthz, "GET", "/healthz/log", 200, "ok"},
		{healthz, "GET", "/pods", 404, ""},
		{healthz, "GET", "/metrics", 404, ""},
	} {
		client, at := http.DefaultClient, c.where
		if a, ok := c.where.(*servertest.API); ok {
			client, at = a.Client(), "https://"+a.Addr
		}
		code, body := servertest.Fetch(t, client, c.method, at.(string)+c.path)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s%s: %d %.600s, want %d %q", c.method, at, c.path, code, body, c.code, c.want)
		}
	}
}

// TestAllowedMethods checks that a read-only path rejects any other method with 405. The response lists the allowed methods.
func TestAllowedMethods(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Server)
	client := a.Client()
	for path, post := range map[string]bool{
		"/pods": false, "/runningpods": false, "/containerLogs/default/web/nginx": false, "/configz": false, "/logs/syslog": false,
		"/metrics": false, "/metrics/cadvisor": false, "/metrics/resource": false, "/metrics/probes": false, "/metrics/slis": false,
		"/healthz": false, "/debug/pprof/heap": false, "/stats/summary": true,
	} {
		for _, method := range []string{"PUT", "DELETE", "PATCH", "POST"} {
			if method == "POST" && post {
				continue
			}
			request, err := http.NewRequestWithContext(t.Context(), method, "https://"+a.Addr+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			allow := strings.Split(response.Header.Get("Allow"), ", ")
			if response.StatusCode != http.StatusMethodNotAllowed || !slices.Contains(allow, "GET") || slices.Contains(allow, "POST") != post {
				t.Errorf("%s %s: %d, allowed: %q", method, path, response.StatusCode, allow)
			}
		}
	}
}

func TestListen(t *testing.T) {
	first, err := server.Listen(t.Context(), "127.0.0.1", 0, "healthz", "healthzPort", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	port := int32(first.Addr().(*net.TCPAddr).Port)
	_, err = server.Listen(t.Context(), "127.0.0.1", port, "healthz", "healthzPort", quiet)
	want := fmt.Sprintf("listen on 127.0.0.1:%d for healthz: the port is taken", port)
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "healthzPort") {
		t.Errorf("got %v", err)
	}
	if _, err := server.Listen(t.Context(), "nonsense", 0, "healthz", "healthzPort", quiet); err == nil {
		t.Error("no address")
	}
	early, err := server.Listen(t.Context(), "192.0.2.7", 0, "the kubelet API", "port", quiet)
	if err != nil {
		t.Fatalf("an address that does not exist yet: %v", err)
	}
	early.Close()
}

// A reviews is a fake control plane. It authenticates two tokens, and permits one of them to read the node.
type reviews struct {
	asked chan authz.SubjectAccessReviewSpec
}

func (r reviews) AuthenticateToken(_ context.Context, token string) (*authn.UserInfo, error) {
	if name, ok := map[string]string{"t-admin": "admin", "t-guest": "guest"}[token]; ok {
		return &authn.UserInfo{Username: name}, nil
	}
	return nil, nil
}

func (r reviews) Authorize(_ context.Context, spec authz.SubjectAccessReviewSpec) (authz.SubjectAccessReviewStatus, error) {
	r.asked <- spec
	return authz.SubjectAccessReviewStatus{Allowed: spec.User == "admin"}, nil
}

// TestPageByToken checks that port 10250 serves the status page to users who are authorized to read the node.
func TestPageByToken(t *testing.T) {
	n, _ := servertest.Start(t)
	s := n.Variant(t, func(c *server.Config) {
		c.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") })
	})
	ca, r := accesstest.New(t), reviews{make(chan authz.SubjectAccessReviewSpec, 10)}
	filter := access.New(access.Config{NodeName: "pi", Tokens: r, Authorizer: r, Log: quiet})
	config := filter.TLS(&tls.Config{Certificates: []tls.Certificate{*ca.Server(t)}, MinVersion: tls.VersionTLS13})
	addr := servertest.Open(t, func(ctx context.Context, ln net.Listener) error { return s.RunAPI(ctx, ln, config, filter.Wrap) })
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	for _, path := range []string{server.PathPage, server.PathPage + "data"} {
		for token, want := range map[string]int{"": 401, "t-none": 401, "t-guest": 403, "t-admin": 200} {
			req, err := http.NewRequest(http.MethodGet, "https://"+addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || (string(body) == "the page") != (want == 200) {
				t.Errorf("%s with %q: %d %q, want %d", path, token, resp.StatusCode, body, want)
			}
			if want == 200 || want == 403 {
				if a := (<-r.asked).ResourceAttributes; a == nil || a.Verb != "get" || a.Resource != "nodes" || a.Subresource != "proxy" ||
					a.Name != "pi" {
					t.Errorf("the request for authorization is %+v", a)
				}
			}
		}
	}
}
