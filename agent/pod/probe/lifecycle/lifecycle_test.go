package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

// fakeCaller is a Caller with real HTTP requests. Its commands return the given result.
type fakeCaller struct {
	*call.Caller
	out string
	err error
}

func (a fakeCaller) Exec(_ context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	if id != "c1" || timeout != 0 {
		return nil, fmt.Errorf("called in %q within %v", id, timeout)
	}
	return []byte(a.out), a.err
}

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "lifecycle")) }

func openHooks(t *testing.T, c Config) *Hooks {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "hooks")
	}
	c.Log = slog.New(slog.DiscardHandler)
	h, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func aPod() *v1.Pod {
	p := podtest.New("web", podtest.UID("u1"), podtest.Containers())
	p.Status.PodIP = "127.0.0.1"
	return p
}

// TestMessages checks that the message of a failed hook is the same as in a kubelet.
func TestMessages(t *testing.T) {
	nobody := &v1.HTTPGetAction{Path: "/x", Port: intstr.FromString("none")}
	for want, tt := range map[string]struct {
		hook v1.LifecycleHandler
		fakeCaller
	}{
		"": {v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "true"}}}, fakeCaller{}},
		`Exec lifecycle hook ([sh -c false]) for Container "c" in Pod "web_default(u1)" failed - error: bad, message: "oh\n"`: {
			v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "false"}}}, fakeCaller{out: "oh\n", err: errors.New("bad")}},
		`HTTP lifecycle hook (/x) for Container "c" in Pod "web_default(u1)" failed - error: strconv.Atoi: parsing "none": invalid syntax`: {
			v1.LifecycleHandler{HTTPGet: nobody}, fakeCaller{Caller: call.New(call.Config{})}},
		`Cannot run handler: invalid handler: &LifecycleHandler{`: {v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}, fakeCaller{}},
	} {
		h := openHooks(t, Config{Caller: tt.fakeCaller})
		err := h.Run(t.Context(), aPod(), &v1.Container{Name: "c"}, "c1", &tt.hook)
		if got := fmt.Sprint(err); err != nil && (want == "" || !strings.HasPrefix(got, want)) || err == nil && want != "" {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

// TestOutputIsBounded checks that the error contains only a limited part of the command's output.
func TestOutputIsBounded(t *testing.T) {
	h := openHooks(t, Config{Caller: fakeCaller{out: strings.Repeat("x", call.MaxOutput), err: errors.New("bad")}})
	err := h.Run(t.Context(), aPod(), &v1.Container{}, "c1", &v1.LifecycleHandler{Exec: &v1.ExecAction{}})
	if err == nil || len(err.Error()) > 2*maxOutput {
		t.Errorf("a message of %d bytes", len(fmt.Sprint(err)))
	}
}

func portOf(t *testing.T, s *httptest.Server) intstr.IntOrString {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(n)
}

// TestHTTP checks that a hook succeeds with any response code. If the server does not support HTTPS, the request is repeated with HTTP,
// without its secret headers.
func TestHTTP(t *testing.T) {
	var asked []http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer s.Close()
	var events []string
	record := func(e eventtest.Event) {
		events = append(events, fmt.Sprint(e.Pod.Name, " ", e.Container, e.Type, " ", e.Reason, ": ", e.Message))
	}
	h := openHooks(t, Config{Caller: fakeCaller{Caller: call.New(call.Config{Version: "1.36"})}, Events: eventtest.Sink(record)})
	get := &v1.HTTPGetAction{Port: portOf(t, s), HTTPHeaders: []v1.HTTPHeader{{Name: "authorization", Value: "secret"}, {Name: "X", Value: "y"}}}
	run := func() error {
		return h.Run(t.Context(), aPod(), &v1.Container{Name: "c"}, "c1", &v1.LifecycleHandler{HTTPGet: get})
	}
	if err := run(); err != nil || len(asked) != 1 || asked[0].Get("Authorization") != "secret" ||
		asked[0].Get("User-Agent") != "kube-lifecycle/1.36" {
		t.Fatalf("%v, requests with %v", err, asked)
	}
	get.Scheme = v1.URISchemeHTTPS
	if err := run(); err != nil || len(asked) != 2 || asked[1].Get("Authorization") != "" || asked[1].Get("X") != "y" {
		t.Fatalf("%v, requests with %v", err, asked)
	}
	if want := "web Warning LifecycleHTTPFallback: request to HTTPS lifecycle hook " + strings.TrimPrefix(s.URL,
		"http://") + " got HTTP response, retry with HTTP succeeded"; len(events) != 1 || events[0] != want {
		t.Errorf("events %q", events)
	}
	if got := counterValues(t, h); got[0] != 1 {
		t.Error(got)
	}
	s.Close()
	if err := run(); err == nil {
		t.Error("the hook succeeded without a response")
	}
}

// TestHTTPHangs checks that a request to an unresponsive server ends with the request's context.
func TestHTTPHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	h := openHooks(t, Config{Caller: fakeCaller{Caller: call.New(call.Config{})}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- h.Run(ctx, aPod(), &v1.Container{}, "c1", &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(l.Addr().(*net.TCPAddr).Port)}})
	}()
	defer (<-accepted).Close()
	stop()
	if err := <-done; err == nil {
		t.Error("a hook that was cut short is success")
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := sleep(t.Context(), 50); err != nil || time.Since(began) != 50*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, seconds := range []int64{0, -5, math.MinInt64} {
			if err := sleep(t.Context(), seconds); err != nil || time.Since(began) != 50*time.Second {
				t.Errorf("%d s: %v after %v", seconds, err, time.Since(began))
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := sleep(ctx, math.MaxInt64); err == nil || err.Error() != "container terminated before sleep hook finished" ||
			time.Since(began) < time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestMarks checks that the mark of a hook that has returned survives restarts of the agent. The mark is deleted with its container.
func TestMarks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hooks")
	h := openHooks(t, Config{Dir: dir})
	for _, id := range []string{"a", "b", "c"} {
		if h.HasReturned(id) {
			t.Errorf("%s has returned", id)
		}
		if err := h.MarkReturned(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Forget("a"); err != nil || h.HasReturned("a") {
		t.Errorf("a: %v, %v", h.HasReturned("a"), err)
	}
	if err := h.Forget("never seen"); err != nil {
		t.Error(err)
	}
	h = openHooks(t, Config{Dir: dir})
	if h.HasReturned("a") || !h.HasReturned("b") || !h.HasReturned("c") {
		t.Error("the marks have changed")
	}
	if err := h.Prune(func(id string) bool { return id == "c" }); err != nil || h.HasReturned("b") {
		t.Errorf("b: %v, %v", h.HasReturned("b"), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "c" {
		t.Errorf("files %v, %v", left, err)
	}
}

// TestHostileIDs checks that no mark is written outside the directory, even if a container ID is a path.
func TestHostileIDs(t *testing.T) {
	parent := t.TempDir()
	h := openHooks(t, Config{Dir: filepath.Join(parent, "hooks")})
	for _, id := range []string{"", ".", "..", "../x", "/etc/x", "a/b", "a\x00"} {
		if err := h.MarkReturned(id); err == nil {
			t.Errorf("%q is accepted", id)
		}
		if !h.HasReturned(id) {
			t.Errorf("%q: its hook is not marked as returned", id)
		}
	}
	all, err := filepath.Glob(filepath.Join(parent, "*", "*"))
	if err != nil || len(all) != 0 {
		t.Errorf("files %v, %v", all, err)
	}
}

// TestFullDisk checks that a removed directory is created again. If a mark cannot be written, the only effect is that the hook runs again
// after a restart of the agent.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hooks")
	h := openHooks(t, Config{Dir: dir})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := h.MarkReturned("b"); err != nil || !openHooks(t, Config{Dir: dir}).HasReturned("b") {
		t.Errorf("after the removal of the directory: %v", err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Symlink("missing/hooks", dir)); err != nil { // the directory cannot be created
		t.Fatal(err)
	}
	if err := h.MarkReturned("a"); err == nil || !h.HasReturned("a") {
		t.Errorf("%v, %v", err, h.HasReturned("a"))
	}
	if err := h.Forget("a"); err != nil || h.HasReturned("a") {
		t.Errorf("%v, %v", err, h.HasReturned("a"))
	}
}

// counterValues returns the values of the hooks' counters.
func counterValues(t *testing.T, h *Hooks) (out []float64) {
	t.Helper()
	for _, c := range h.Collectors() {
		var m dto.Metric
		if err := c.(prometheus.Counter).Write(&m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m.GetCounter().GetValue())
	}
	return out
}

// TestSleepCounts checks that an interrupted sleep is counted.
func TestSleepCounts(t *testing.T) {
	h := openHooks(t, Config{})
	ctx, stop := context.WithCancel(t.Context())
	if err := h.Run(ctx, aPod(), &v1.Container{Name: "c"}, "c1", &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}); err != nil {
		t.Error(err)
	}
	stop()
	if err := h.Run(ctx, aPod(), &v1.Container{Name: "c"}, "c1", &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 100}}); err == nil {
		t.Error("a cancelled sleep of 100 s succeeded")
	}
	if got := counterValues(t, h); got[0] != 0 || got[1] != 1 {
		t.Error(got)
	}
}
