package supervisor

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

// A world is a node that has joined the cluster of a server.
type world struct {
	*k3stest.Server
	t       *testing.T
	dir     k3s.Directory
	other   *k3s.Cluster // with the same server
	changed chan struct{}
	logs    chan slog.Record

	mu    sync.Mutex
	now   time.Time
	ips   []string
	token string
}

// newWorld joins a node. Its certificates are valid for a life.
func newWorld(t *testing.T, life time.Duration, prepare func(w *world, c *k3s.Cluster)) *world {
	t.Helper()
	w := &world{Server: k3stest.Start(t), t: t, changed: make(chan struct{}, 1), logs: make(chan slog.Record, 100), now: time.Now(),
		ips: []string{"192.0.2.7"}}
	w.Life = life
	root := t.TempDir()
	password := filepath.Join(root, "password")
	secret, err := k3s.EnsurePassword(password)
	if err != nil {
		t.Fatal(err)
	}
	made := &k3s.Cluster{ClientCA: w.Client.PEM, ServerCA: w.Serving.PEM,
		Record: k3s.Record{Server: w.URL, APIServer: w.URL, Node: "pi", PasswordFile: password}}
	c, err := k3s.New(k3s.Config{Server: w.URL, CA: w.Serving.PEM, Token: k3s.Token{Password: k3stest.Secret}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	n := k3s.Node{Name: "pi", Password: secret, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	if made.Client, err = c.Issue(t.Context(), k3s.ForClient, n, made.ClientCA); err != nil {
		t.Fatal(err)
	}
	if made.Serving, err = c.Issue(t.Context(), k3s.ForServing, n, made.ServerCA); err != nil {
		t.Fatal(err)
	}
	other := *made
	w.other = &other
	w.other.Record.Node = "other"
	if prepare != nil {
		prepare(w, made)
	}
	if err := k3s.Store(root, made, nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	w.dir = k3s.Current(root)
	w.Requests()
	return w
}

// ClientCertificate implements Link. Like the link, it reads the certificate again when its file has changed.
func (w *world) ClientCertificate() *tls.Certificate {
	p, _, err := w.dir.Pair(k3s.ForClient)
	if err != nil {
		return nil
	}
	return p.TLS()
}

// Changed implements Link.
func (w *world) Changed() kube.LinkSignal { return kube.LinkSignal{C: w.changed} }

// Now implements Link.
func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass advances the clock, and wakes the supervisor.
func (w *world) pass(d time.Duration) {
	w.advance(d)
	w.changed <- struct{}{}
}

// advance advances the clock.
func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// setAddresses sets the node's addresses.
func (w *world) setAddresses(ips ...string) {
	w.mu.Lock()
	w.ips = ips
	w.mu.Unlock()
	w.changed <- struct{}{}
}

// config returns the configuration of the node's supervisor.
func (w *world) config() Config {
	return Config{Directory: w.dir, Node: "pi", Address: "0.0.0.0", Port: 10250, Link: w, Log: slog.New(handler(w.logs)), Addresses: func() []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ips
	}}
}

// run starts a supervisor.
func (w *world) run(c Config) *Supervisor {
	w.t.Helper()
	s, err := New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return s
}

// logged waits for a line of the given level, and returns its text with its values.
func (w *world) logged(level slog.Level) string {
	w.t.Helper()
	for {
		select {
		case r := <-w.logs:
			if r.Level != level {
				continue
			}
			text := r.Message
			r.Attrs(func(a slog.Attr) bool {
				text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
				return true
			})
			return text
		case <-w.t.Context().Done():
			w.t.Fatal("nothing was logged")
		}
	}
}

// leafs returns the ends of both certificates.
func (w *world) serials() (client, serving string) {
	w.t.Helper()
	for use, to := range map[k3s.Purpose]*string{k3s.ForClient: &client, k3s.ForServing: &serving} {
		p, _, err := w.dir.Pair(use)
		if err != nil {
			w.t.Fatal(err)
		}
		*to = p.Leaf.SerialNumber.String()
	}
	return client, serving
}

// files returns the files of the directory in use.
func (w *world) files() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(string(w.dir))
	if err != nil {
		w.t.Error(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(string(w.dir), e.Name()))
		if err != nil {
			w.t.Error(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// A handler is a slog.Handler that sends records on a channel.
type handler chan slog.Record

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h <- r:
	default:
	}
	return nil
}

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h handler) WithGroup(string) slog.Handler { return h }
