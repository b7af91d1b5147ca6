package link

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube/kubetest"
)

const year = 365 * 24 * time.Hour

// A timedWorld is a node and a server that are connected in memory. Their clocks may be wrong. The time of the bubble is the correct time.
type timedWorld struct {
	*world
	line   *kubetest.Line
	offset atomic.Int64 // offset of the machine's clock
	date   atomic.Int64 // offset of the Date header that the server sends
}

func newTimed(t *testing.T) *timedWorld {
	w := &timedWorld{world: &world{t: t, dir: t.TempDir(), meta: &memory{values: map[string]string{}}, now: time.Now,
		who: map[string]int{}}, line: &kubetest.Line{Delay: 20 * time.Millisecond}}
	w.server = kubetest.NewOn(t, w.line, certificatesv1.AddToScheme, corev1.AddToScheme)
	w.server.Authenticate = func(r *http.Request) bool { return w.authenticate(r) }
	date := func(rw http.ResponseWriter) {
		rw.Header().Set("Date", time.Now().Add(time.Duration(w.date.Load())).UTC().Format(http.TimeFormat))
	}
	w.server.Mux = http.NewServeMux()
	w.server.Mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		date(rw)
		_, _ = io.WriteString(rw, "ok")
	})
	w.server.Mux.HandleFunc("GET /api/v1/nodes/n", func(rw http.ResponseWriter, r *http.Request) {
		date(rw)
		w.server.Write(rw, r, 200, &corev1.Node{})
	})
	return w
}

func (w *timedWorld) machine() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

// boot starts the node. The returned function stops the node.
func (w *timedWorld) boot(cfg Config) (*Link, func()) {
	l, err := New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	l.files.dirs = nil // inotify does not work in the bubble
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		l.client.CloseConnections()
	}
}

// member returns the configuration of a node. The certificates of the node and of the server are half a year old. The certificate of the
// node is valid for a year. A bootstrap kubeconfig exists, but the server does not approve signing requests.
func (w *timedWorld) member(serverLife time.Duration) Config {
	begin := time.Now().Add(-year / 2)
	cert := w.server.CA.ServerUntil(w.t, begin, begin.Add(serverLife), "127.0.0.1")
	w.server.Certificate = &cert
	cfg := w.config()
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Dial, cfg.Clock = w.line.Dial, w.machine
	cfg.BootstrapKubeconfig = filepath.Join(w.dir, "bootstrap.conf")
	cfg.Rotate = false
	c, k := w.server.CA.Client(w.t, "system:node:n", []string{"system:nodes"}, begin, begin.Add(year))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: c, ClientKeyData: k})
	w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: "over long ago"})
	return cfg
}

// asks sends requests at intervals, as a node does.
func (w *timedWorld) asks(l *Link, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(30 * time.Second):
			_ = get(w.t.Context(), l)
		}
	}
}

func up60(t *testing.T, l *Link, since time.Time, what string) {
	t.Helper()
	for {
		s, moved := l.states.get()
		if s.Phase == Up {
			break
		}
		select {
		case <-moved:
		case <-time.After(10 * time.Minute):
			t.Fatalf("%s: the link stays %+v, with %+v", what, s, l.Times())
		}
	}
	if took := time.Since(since); took > time.Minute {
		t.Errorf("%s: the link is up %s after the clock is right", what, took)
	}
}

// TestWrongTimes checks all combinations of wrong clocks of the machine and the server. A clock is wrong at boot or becomes wrong later.
// The server's certificate is valid for one or ten years. The node keeps its credentials while a clock is wrong. Within a minute after the
// clock is correct, the link is up. No restart and no user is needed for that. The test then restarts the agent and checks this again.
// Without ISLET_TEST_LONG, a clock that becomes wrong later is only tested with the certificate for one year, and a clock that is wrong at
// boot only with the certificate for ten years.
func TestWrongTimes(t *testing.T) {
	bubble := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ machine, date time.Duration }{
		"1970":        {machine: time.Unix(1000, 0).Sub(bubble)},
		"a year ago":  {machine: -year},
		"in 5 years":  {machine: 5 * year},
		"wrong Date":  {date: 5 * year},
		"Date of old": {date: -year},
		"both":        {machine: -year, date: 5 * year},
	} {
		for _, life := range []time.Duration{year, 10 * year} {
			for _, running := range []bool{false, true} {
				if running != (life == year) && os.Getenv("ISLET_TEST_LONG") == "" {
					continue
				}
				t.Run(fmt.Sprintf("%s, server %dy, running %v", name, life/year, running), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { wrongTime(t, c.machine, c.date, life, running) })
				})
			}
		}
	}
}

func wrongTime(t *testing.T, machine, date, life time.Duration, running bool) {
	time.Sleep(2 * year) // the test CA must be older than the certificates
	w := newTimed(t)
	cfg := w.member(life)
	wrong := func() {
		w.offset.Store(int64(machine))
		w.date.Store(int64(date))
	}
	if !running {
		wrong()
	}
	l, stop := w.boot(cfg)
	enough := make(chan struct{})
	go w.asks(l, enough)
	if running {
		up60(t, l, time.Now(), "before")
		time.Sleep(time.Hour)
		wrong()
		w.line.CloseConnections() // the next connection is opened with the wrong clock
	}
	time.Sleep(time.Hour)
	if _, err := l.identity.restConfig(); err != nil {
		t.Errorf("a wrong clock removed the node's credentials: %v", err)
	}
	w.offset.Store(0)
	w.date.Store(0)
	up60(t, l, time.Now(), "the clocks are right")
	time.Sleep(10 * time.Minute)
	w.line.CloseConnections()
	time.Sleep(time.Second)
	up60(t, l, time.Now(), "the next connection")
	if off := l.Now().Sub(time.Now()).Abs(); off > time.Hour {
		t.Errorf("the node's time is off by %s: %+v", off, l.Times())
	}
	close(enough)
	stop()
	l, stop = w.boot(cfg)
	up60(t, l, time.Now(), "after a restart")
	time.Sleep(40 * time.Second) // waits for the requests of asks
	stop()
}
