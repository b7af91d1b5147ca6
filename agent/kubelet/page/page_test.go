package page

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/metrics/host"
)

// Text of a pod that tries to run a script in the page.
const hostile = `</script><img src=x onerror="document.title='pwned'"><script>document.title='pwned'</script>`

type machine struct{ n int }

func (m *machine) Read(context.Context) (Reading, error) {
	m.n++
	if m.n == 4 {
		return Reading{}, errors.New("not now")
	}
	i := uint64(m.n)
	return Reading{At: time.Now(), Cores: float64(m.n%7) / 9, Memory: (300 + i%40) << 20, Disk: 9 << 30, Received: i * i << 10, Sent: i << 11}, nil
}

// Links implements Machine.
func (m *machine) Links(names []string) (out []host.NetworkLink) {
	for i, name := range names {
		out = append(out, host.NetworkLink{Name: name, State: []string{"up", "down"}[i%2], Mbit: 1000, Addresses: []string{"192.168.1.7/24"}})
	}
	return out
}

// ClockSync implements Machine.
func (m *machine) ClockSync() host.ClockSync { return host.ClockUnsynchronized }

func newPage() *Page {
	return New(Config{Port: 1, API: nodetest{}.handler, Machine: &machine{}, Log: slog.New(slog.DiscardHandler)})
}

func ask(h http.Handler, method, target, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestWho checks that the page answers only read requests. The Host header must name localhost or a loopback address, and scripts of other
// sites get no data.
func TestWho(t *testing.T) {
	p := newPage()
	local := p.localOnly()
	for _, x := range []struct {
		method, path, host string
		header             []string
		want               int
	}{
		{"GET", "/", "localhost:10247", nil, 200}, {"GET", "/data", "127.0.0.1:10247", nil, 200}, {"GET", "/page.js", "[::1]:10247", nil, 200}, {"HEAD", "/", "LOCALHOST", nil, 200},
		{"GET", "/data", "evil.example:10247", nil, 421}, {"GET", "/", "localhost.evil.example", nil, 421}, {"GET", "/data", "10.0.0.7:10247", nil, 421}, {"GET", "/data", "", nil, 421},
		{"GET", "/data", "localhost", []string{"Sec-Fetch-Site", "cross-site"}, 403}, {"GET", "/page.js", "localhost", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"GET", "/data", "localhost", []string{"Sec-Fetch-Site", "same-origin"}, 200}, {"GET", "/", "localhost", []string{"Sec-Fetch-Site", "cross-site"}, 200},
		{"GET", "/data", "localhost", []string{"Origin", "https://evil.example"}, 403},
		{"POST", "/data", "localhost", nil, 405}, {"DELETE", "/", "localhost", nil, 405},
		{"GET", "/nothing", "localhost", nil, 404}, {"GET", "/../page.go", "localhost", nil, 404}, {"GET", "/assets/page.js", "localhost", nil, 404},
		{"GET", "/log?namespace=default&pod=camera&container=main", "localhost", nil, 200}, {"GET", "/log?namespace=default&pod=camera", "localhost", nil, 400},
		{"GET", "/log?namespace=default&pod=..&container=main", "localhost", nil, 400}, {"GET", "/log?namespace=default&pod=a%2Fb&container=main", "localhost", nil, 400},
		{"GET", "/log?namespace=default&pod=gone&container=main", "localhost", nil, 404},
		{"GET", "/network", "localhost", nil, 200}, {"GET", "/network", "localhost", []string{"Sec-Fetch-Site", "same-site"}, 403}, {"HEAD", "/network", "evil.example", nil, 421},
		{"GET", "/pod?namespace=default&pod=camera", "localhost", nil, 200}, {"GET", "/pod?namespace=default&pod=camera&container=main&previous=true", "localhost", nil, 200},
		{"GET", "/pod?namespace=default&pod=nobody", "localhost", nil, 404}, {"GET", "/pod?namespace=default", "localhost", nil, 400},
		{"GET", "/pod?namespace=default&pod=..", "localhost", nil, 400}, {"GET", "/pod?namespace=default&pod=camera", "evil.example", nil, 421},
		{"GET", "/?events=warnings", "localhost", nil, 200},
	} {
		w := ask(local, x.method, x.path, x.host, x.header...)
		if w.Code != x.want {
			t.Errorf("%s %s of %q %q: %d %s, want %d", x.method, x.path, x.host, x.header, w.Code, w.Body, x.want)
		}
		if x.want == 200 && (w.Header().Get("Content-Security-Policy") != contentPolicy ||
			w.Header().Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s: %v", x.path, w.Header())
		}
	}
	if w := ask(p.HandlerAt("/page/"), "GET", "/page/data", "10.0.0.7:10250"); w.Code != 200 {
		t.Errorf("behind the node's authentication: %d", w.Code)
	}
	if strings.Contains(contentPolicy, "unsafe") || New(Config{}) != nil || New(Config{}).HandlerAt("/page/") != nil {
		t.Error("off is not off")
	}
}

// TestData checks that text of a pod is escaped, that values of its specification are not sent, and that the size of
// the data is limited.
func TestData(t *testing.T) {
	local := newPage().localOnly()
	w := ask(local, "GET", "/data", "localhost")
	if body := w.Body.String(); strings.ContainsAny(body, "<>") || strings.Contains(body, "a secret") {
		t.Errorf("%s", body)
	}
	var d document
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	refused := "/etc/islet/manifests/x.yaml: spec.containers[0].image: Required value"
	if len(d.Pods) != 5 || len(d.Attention) != 3 || d.Attention[1] != refused || len(d.Events) != 2 || d.Events[0].Reason != "BackOff" ||
		d.Pods[0].State != "CrashLoopBackOff" || d.Pods[0].Restarts != 12 || d.Pods[1].Name != hostile || d.Memory != 648<<20 {
		t.Errorf("%+v", d)
	}
	w = ask(local, "GET", "/log?namespace=default&pod=camera&container=main", "localhost")
	if n := w.Body.Len(); n > logBytes+10 || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d bytes of log as %s", n, w.Header().Get("Content-Type"))
	}
}

// TestSize checks that the page is small, and that it loads nothing from other servers and has no inline scripts or
// styles.
func TestSize(t *testing.T) {
	size := 0
	err := fs.WalkDir(assets, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := assets.ReadFile(path)
		size += len(b)
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style=", "onclick=", "onerror=", "https://", "//cdn", "url("} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
		return err
	})
	if err != nil || size == 0 || size > 100<<10 {
		t.Errorf("%d bytes, %v", size, err)
	}
}

// TestHistory checks that the history covers one hour, with the network traffic between the readings.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var h history
		done := make(chan struct{})
		go func() { defer close(done); h.run(ctx, &machine{}) }()
		time.Sleep(65 * time.Second)
		l := h.list()
		if len(l) != 3 || l[0].SentBy != 0 || l[2].SentBy != 2048.0/30 || l[2].ReceivedBy != 5*1024.0/30 {
			t.Errorf("%+v", l)
		}
		time.Sleep(3 * time.Hour)
		l = h.list()
		if len(l) != points || l[points-1].At.Sub(l[0].At) != (points-1)*Interval {
			t.Errorf("%d readings over %v", len(l), l[len(l)-1].At.Sub(l[0].At))
		}
		h.add(Reading{At: time.Now().Add(time.Second)}) // the counters were reset
		if l = h.list(); l[points-1].SentBy != 0 {
			t.Error(l[points-1])
		}
		cancel()
		<-done
	})
}

// TestSlowClients checks that slow local clients do not block other clients. The slow clients hold the maximum number of connections, and
// send nothing or an incomplete request.
func TestSlowClients(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	p := New(Config{Port: port, API: nodetest{}.handler, Machine: &machine{}, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dial := func() net.Conn {
		for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() { // the page is listening
			c, err := net.Dial("tcp", at)
			if err == nil {
				return c
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	for i := range 2 * maxConnections {
		c := dial()
		defer c.Close()
		if i%2 == 0 {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
		}
	}
	for range 20 {
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + net.JoinHostPort("localhost", strconv.Itoa(port)) + "/")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	}
}
