package call

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// These constants are the timeouts of calls. The timeout shortTimeout is for calls that get no response, and long is for all other calls.
const (
	shortTimeout = 50 * time.Millisecond
	long         = time.Minute
)

func target(ports ...v1.ContainerPort) Target {
	return Target{ID: "c1", IP: "127.0.0.1", Container: &v1.Container{Ports: ports}}
}

// portOf returns the port in a server's address.
func portOf(t *testing.T, addr string) intstr.IntOrString {
	t.Helper()
	_, p, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(addr, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(n)
}

// serveRaw starts a server that calls the function serve for each connection. It returns the server's port.
func serveRaw(t *testing.T, serve func(net.Conn)) intstr.IntOrString {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c) }()
		}
	}()
	return portOf(t, l.Addr().String())
}

// readUntilClosed reads until the client closes the connection.
func readUntilClosed(c net.Conn) { io.Copy(io.Discard, c) }

func TestPort(t *testing.T) {
	to := target(v1.ContainerPort{Name: "web", ContainerPort: 80}, v1.ContainerPort{Name: "far", ContainerPort: 70000})
	for _, tt := range []struct {
		port intstr.IntOrString
		want string
	}{
		{intstr.FromInt(8080), "127.0.0.1:8080"}, {intstr.FromString("web"), "127.0.0.1:80"}, {intstr.FromString("443"), "127.0.0.1:443"},
		{intstr.FromString("none"), `strconv.Atoi: parsing "none": invalid syntax`}, {intstr.FromInt(0), "invalid port number: 0"},
		{intstr.FromInt(65536), "invalid port number: 65536"}, {intstr.FromString("far"), "invalid port number: 70000"}, {intstr.FromString("-1"), "invalid port number: -1"},
	} {
		got, err := to.Address("", tt.port)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %q (%v), want %q", tt.port.String(), got, err, tt.want)
		}
	}
	if got, err := to.Address("example.com", intstr.FromInt(1)); got != "example.com:1" || err != nil {
		t.Errorf("another host: %q, %v", got, err)
	}
	// A pod without an address is not called, because a call with an empty host would go to the node itself.
	to.IP = ""
	if got, err := to.Address("", intstr.FromInt(1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("no address: %q, %v", got, err)
	}
	to.IP = "fd00::7"
	if got, _ := to.Address("", intstr.FromInt(1)); got != "[fd00::7]:1" {
		t.Errorf("IPv6: %q", got)
	}
}

// This helper returns a port without a listener. The port is bound, so no other program can use it.
func deaf(t *testing.T) intstr.IntOrString {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(at.(*unix.SockaddrInet4).Port)
}

func TestConnect(t *testing.T) {
	ended := make(chan error, 1)
	port := serveRaw(t, func(c net.Conn) { _, err := c.Read(make([]byte, 1)); ended <- err })
	c := New(Config{})
	if err := c.Connect(t.Context(), target(), &v1.TCPSocketAction{Port: port}, long); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("the server saw %v instead of the end of the connection", err)
	}
	free := deaf(t)
	if err := c.Connect(t.Context(), target(), &v1.TCPSocketAction{Port: free}, long); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a free port: %v", err)
	}
	if err := c.Connect(t.Context(), target(), &v1.TCPSocketAction{Port: intstr.FromString("none")}, long); !errors.Is(err, ErrInvalid) {
		t.Errorf("no port: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Connect(ctx, target(), &v1.TCPSocketAction{Port: port}, 0); err == nil {
		t.Error("connects after the end of the context")
	}
}

func TestGet(t *testing.T) {
	got := make(chan *http.Request, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, strings.Repeat("x", 3*MaxOutput))
	}))
	defer s.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	to := target(v1.ContainerPort{Name: "web", ContainerPort: portOf(t, s.URL).IntVal})
	for _, tt := range []struct {
		name    string
		headers []v1.HTTPHeader
		want    string // the headers User-Agent, Accept and Host, and the pod's own header
	}{
		{"none", nil, `kube-probe/1.36 ["*/*"] 127.0.0.1 []`},
		{"own", []v1.HTTPHeader{{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}, {Name: "host", Value: "example.com"}}, `kube-probe/1.36 ["*/*"] example.com ["1" "2"]`},
		{"other", []v1.HTTPHeader{{Name: "user-agent", Value: "me"}, {Name: "accept", Value: "text/plain"}}, `me ["text/plain"] 127.0.0.1 []`},
		{"empty", []v1.HTTPHeader{{Name: "User-Agent", Value: ""}, {Name: "Accept", Value: ""}}, ` [] 127.0.0.1 []`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &v1.HTTPGetAction{Path: "/healthz?deep=1", Port: intstr.FromString("web"), HTTPHeaders: tt.headers}
			resp, err := New(Config{Version: "v1.36.3"}).Get(t.Context(), to, a, Probe, long)
			if err != nil || resp.Code != http.StatusTeapot || len(resp.Body) != MaxOutput {
				t.Fatalf("%d, %d bytes, %v", resp.Code, len(resp.Body), err)
			}
			r := <-got
			host, _, _ := strings.Cut(r.Host, ":")
			if s := fmt.Sprintf("%s %q %s %q", r.UserAgent(), r.Header["Accept"], host, r.Header["X-A"]); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
			if r.Method != "GET" || r.URL.String() != "/healthz?deep=1" || r.Header.Get("Accept-Encoding") != "" || !r.Close {
				t.Errorf("%s %s %v, close: %v", r.Method, r.URL, r.Header, r.Close)
			}
		})
	}
}

// TestGetLeavesNothing checks that each request has its own connection. The connection is closed after the request.
func TestGetLeavesNothing(t *testing.T) {
	for _, secure := range []bool{false, true} {
		states := make(chan http.ConnState, 100)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat("x", 3*MaxOutput))
		}))
		s.Config.ConnState = func(_ net.Conn, st http.ConnState) { states <- st }
		a := &v1.HTTPGetAction{Scheme: v1.URISchemeHTTP}
		if secure {
			s.EnableHTTP2, a.Scheme = true, v1.URISchemeHTTPS
			s.StartTLS()
		} else {
			s.Start()
		}
		a.Port = portOf(t, s.URL)
		c := New(Config{})
		for range 3 {
			if _, err := c.Get(t.Context(), target(), a, Probe, long); err != nil {
				t.Fatal(err)
			}
			for st := range states {
				if st == http.StateClosed {
					break
				}
			}
		}
		s.Close()
	}
}

func TestRedirects(t *testing.T) {
	asked := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- "other" }))
	defer other.Close()
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/same": "/ok", "/port": other.URL, "/away": strings.Replace(other.URL, "127.0.0.1", "localhost", 1), "/api": "https://10.96.0.1/api",
			"/loop": "/loop", "/file": "file:///etc/passwd", "/upper": "HTTP://127.0.0.1:1/",
		}[r.URL.Path]
		switch {
		case to != "":
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
			io.WriteString(w, "moved")
		case r.URL.Path == "/nowhere":
			w.WriteHeader(http.StatusMultipleChoices)
		}
	}))
	defer s.Close()
	for _, tt := range []struct {
		path, want string
	}{
		{"/same", "200"}, {"/port", "200"}, {"/away", "302 moved"}, {"/api", "302 moved"}, {"/nowhere", "300"},
		{"/loop", "stopped after 10 redirects"}, {"/file", "302 moved"}, {"/upper", "connection refused"},
	} {
		resp, err := New(Config{}).Get(t.Context(), target(), &v1.HTTPGetAction{Path: tt.path, Port: portOf(t, s.URL)}, Probe, long)
		got := strings.TrimSpace(fmt.Sprint(resp.Code, " ", resp.Body))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.path, got, tt.want)
		}
	}
	if len(asked) != 1 { // there is one request, for /port with the probe's host
		t.Errorf("the other server received %d requests", len(asked))
	}
}

func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	defer s.Close()
	a := &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Port: portOf(t, s.URL)}
	if resp, err := New(Config{}).Get(t.Context(), target(), a, Lifecycle, long); err != nil || resp != (Response{200, "ok"}) {
		t.Errorf("%+v, %v", resp, err) // the server's certificate is self-signed
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	a.Port = portOf(t, plain.URL)
	if _, err := New(Config{}).Get(t.Context(), target(), a, Lifecycle, long); !errors.Is(err, http.ErrSchemeMismatch) {
		t.Errorf("a server without TLS: %v", err)
	}
}

// TestHostileServers checks that a slow, endless or invalid response of a server costs at most the timeout and a limited amount of memory.
func TestHostileServers(t *testing.T) {
	endless := func(head, more string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := io.WriteString(c, head); err != nil {
				return
			}
			for more != "" {
				if _, err := io.WriteString(c, more); err != nil {
					return
				}
			}
			readUntilClosed(c)
		}
	}
	big := strings.Repeat("x", 32<<10)
	for _, tt := range []struct {
		name    string
		serve   func(net.Conn)
		scheme  v1.URIScheme
		timeout time.Duration
		want    string
	}{
		{"silent", readUntilClosed, "", shortTimeout, "Client.Timeout"},
		{"hangs up", func(net.Conn) {}, "", long, ""},
		{"half a line", endless("HTTP/1.1 200", ""), "", shortTimeout, "Client.Timeout"},
		{"endless line", endless("HTTP/1.1 200 ", big), "", long, ""},
		{"endless headers", endless("HTTP/1.1 200 OK\r\n", "A: "+big+"\r\n"), "", long, "exceeded"},
		{"endless informations", endless("", "HTTP/1.1 103 Early Hints\r\nA: "+big+"\r\n\r\n"), "", long, ""},
		{"half a body", endless("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", ""), "", shortTimeout, "Client.Timeout"},
		{"short body", func(c net.Conn) {
			io.ReadFull(c, make([]byte, 16))
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
			c.(*net.TCPConn).CloseWrite()
			readUntilClosed(c)
		}, "", long, "unexpected EOF"},
		{"endless chunks", endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"), "", long, "ok"},
		{"endless chunk length", endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0"), "", long, ""},
		{"endless body", endless("HTTP/1.1 200 OK\r\n\r\n", big), "", long, "ok"},
		{"no HTTP", endless("SSH-2.0-OpenSSH_9.7\r\n", ""), "", long, "malformed"},
		{"switches protocols", endless("HTTP/1.1 101 Switching Protocols\r\n\r\n", ""), "", shortTimeout, ""},
		{"TLS: garbage", endless(big, ""), v1.URISchemeHTTPS, long, "tls"},
		{"TLS: silent", readUntilClosed, v1.URISchemeHTTPS, shortTimeout, "Client.Timeout"},
		{"TLS: endless handshake", endless("", "\x16\x03\x03\x00\x04\x02\xff\xff\xff"), v1.URISchemeHTTPS, long, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := New(Config{}).Get(t.Context(), target(), &v1.HTTPGetAction{Scheme: tt.scheme, Port: serveRaw(t, tt.serve)}, Probe, tt.timeout)
			switch {
			case tt.want == "ok":
				if err != nil || resp.Code != 200 || len(resp.Body) != MaxOutput {
					t.Errorf("%d, %d bytes, %v", resp.Code, len(resp.Body), err)
				}
			case len(resp.Body) > MaxOutput:
				t.Errorf("%d bytes", len(resp.Body))
			case err == nil && tt.name != "switches protocols":
				t.Errorf("got %+v, want an error", resp)
			case err != nil && !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %q, want %q", err, tt.want)
			case err != nil && errors.Is(err, ErrBroken) != (tt.name == "short body" || tt.name == "endless chunk length" ||
				strings.Contains(err.Error(), "reading body")):
				t.Errorf("broken: %v", err)
			}
		})
	}
}

// TestUnaskedIsNotLogged checks that the agent does not log data that a server sends before the request.
func TestUnaskedIsNotLogged(t *testing.T) {
	logged := make(chan string, 100)
	log.SetOutput(lines(logged))
	defer log.SetOutput(os.Stderr)
	port := serveRaw(t, func(c net.Conn) {
		io.WriteString(c, strings.Repeat("HTTP/1.1 200 OK\r\n\r\n", 10))
		http.ReadRequest(bufio.NewReader(c)) // the body of a response without a length ends with the connection
	})
	if _, err := New(Config{}).Get(t.Context(), target(), &v1.HTTPGetAction{Port: port}, Probe, long); err != nil && !errors.Is(err, ErrBroken) {
		t.Error(err)
	}
	for len(logged) > 0 {
		if line := <-logged; strings.Contains(line, "200 OK") {
			t.Errorf("logged %q", line)
		}
	}
}

type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

// TestGetEndsWithItsContext checks that a call without a timeout ends when the agent or the pod ends.
func TestGetEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	port := serveRaw(t, func(c net.Conn) { stop(); readUntilClosed(c) })
	if _, err := New(Config{}).Get(ctx, target(), &v1.HTTPGetAction{Port: port}, Probe, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// FuzzRequest checks that a request is sent only to the target. The path and the headers contain arbitrary text.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{"", "/", "healthz", "//evil/x", "http://evil/", "mailto:evil", "/%zz", "/a?b#c", "?x", "@evil/", "\n", "//user:pw@evil", ":evil"} {
		f.Add(path, "Host", "evil")
	}
	f.Fuzz(func(t *testing.T, path, name, value string) {
		a := &v1.HTTPGetAction{Path: path, Port: intstr.FromInt(80), HTTPHeaders: []v1.HTTPHeader{{Name: name, Value: value}}}
		req, err := New(Config{Version: "v1.36.3"}).buildRequest(target(), a, Probe)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if h := req.URL.Host; h != "127.0.0.1:80" && h != "" || req.URL.Scheme != "http" { // net/http rejects an empty host
			t.Errorf("asks %q", req.URL)
		}
		if req.Method != "GET" || req.Body != nil {
			t.Errorf("%s with a body: %v", req.Method, req.Body)
		}
	})
}

// TestOpaquePath checks that net/http returns an error for an empty host. It must not call the node itself.
func TestOpaquePath(t *testing.T) {
	_, err := New(Config{}).Get(t.Context(), target(), &v1.HTTPGetAction{Path: "mailto:evil", Port: intstr.FromInt(80)}, Probe, long)
	var u *url.Error
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "no Host") {
		t.Errorf("got %v", err)
	}
}
