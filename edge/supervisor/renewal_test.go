package supervisor

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

const year = 365 * 24 * time.Hour

// TestRenewal checks that nothing is requested before a certificate is due, and that both certificates are then replaced.
func TestRenewal(t *testing.T) {
	w := newWorld(t, year, nil)
	client, serving := w.serials()
	w.run(w.config())
	w.pass(200 * 24 * time.Hour) // the CAs are read, because a day has passed
	w.requested("GET /v1-k3s/server-ca.crt")
	if c, s := w.serials(); c != client || s != serving {
		t.Error("a certificate was renewed early")
	}
	w.pass(year - 220*24*time.Hour)
	w.logged(slog.LevelInfo)
	for {
		if c, s := w.serials(); c != client && s != serving {
			break
		}
		w.logged(slog.LevelInfo)
	}
}

// requested waits until a request was sent.
func (w *world) requested(request string) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !slices.Contains(w.Requests(), request); runtime.Gosched() {
		if time.Now().After(deadline) {
			w.t.Fatal(request, "was not requested")
		}
	}
}

// TestClockSetBack checks that the CAs are read although the clock was years ahead when the process began.
func TestClockSetBack(t *testing.T) {
	w := newWorld(t, year, nil)
	w.advance(100 * 24 * time.Hour)
	w.run(w.config())
	w.pass(-99 * 24 * time.Hour)
	w.requested("GET /v1-k3s/server-ca.crt")
}

// TestAddresses checks that a new address of the node causes one request for a serving certificate, which then has the address.
func TestAddresses(t *testing.T) {
	w := newWorld(t, year, nil)
	client, _ := w.serials()
	w.run(w.config())
	w.setAddresses("192.0.2.8", "fd00::8")
	for {
		p, _, err := w.dir.Pair(k3s.ForServing)
		if err != nil {
			t.Fatal(err)
		}
		if p.Leaf.VerifyHostname("192.0.2.8") == nil && p.Leaf.VerifyHostname("fd00::8") == nil {
			break
		}
		w.logged(slog.LevelInfo)
	}
	if c, _ := w.serials(); c != client {
		t.Error("the client certificate was replaced too")
	}
}

// TestKept checks for each failure that the old certificates stay, and that they are replaced as soon as the failure is over.
func TestKept(t *testing.T) {
	for name, break_ := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"an error": func(w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return true
		},
		"no API server": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/api/") {
				return false
			}
			http.Error(w, "down", http.StatusServiceUnavailable)
			return true
		},
		"an unknown certificate": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/api/") {
				return false
			}
			http.Error(w, "", http.StatusUnauthorized)
			return true
		},
		"nonsense": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "client-kubelet.crt") {
				return false
			}
			w.Write([]byte("nonsense"))
			return true
		},
		"another CA": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/server-ca.crt") {
				return false
			}
			w.Write(strangerPEM)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, year, nil)
			strangerPEM = k3stest.NewCA(t, "stranger").PEM
			client, _ := w.serials()
			ca, err := os.ReadFile(w.dir.ServerCA())
			if err != nil {
				t.Fatal(err)
			}
			var fail func(http.ResponseWriter, *http.Request) bool = break_
			works := make(chan struct{})
			w.Answer = func(a http.ResponseWriter, r *http.Request) bool {
				select {
				case <-works:
					return false
				default:
					return fail(a, r)
				}
			}
			w.run(w.config())
			w.pass(year - 24*time.Hour)
			for !strings.Contains(w.logged(slog.LevelWarn), "due=[client-kubelet") {
			}
			if c, _ := w.serials(); c != client {
				t.Error("the certificate was replaced")
			}
			if now, err := os.ReadFile(w.dir.ServerCA()); string(now) != string(ca) || err != nil {
				t.Errorf("the CA was replaced, %v", err)
			}
			close(works)
			for c := client; c == client; c, _ = w.serials() {
				w.pass(0)
			}
		})
	}
}

// TestNewCA checks that a node takes over a CA that the server has added, within a day.
func TestNewCA(t *testing.T) {
	w := newWorld(t, year, nil)
	both := append(slices.Clone(w.Serving.PEM), k3stest.NewCA(t, "next").PEM...)
	w.Answer = func(a http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v1-k3s/server-ca.crt" {
			a.Write(both)
		}
		return r.URL.Path == "/v1-k3s/server-ca.crt"
	}
	w.run(w.config())
	w.pass(24 * time.Hour)
	for {
		now, err := os.ReadFile(w.dir.ServerCA())
		if err != nil {
			t.Fatal(err)
		}
		if string(now) == string(both) {
			return
		}
		w.pass(0)
	}
}

// strangerPEM is a CA that has not signed the certificate of the server.
var strangerPEM []byte

// TestRefusedCertificate checks that a node whose certificate the server refuses uses its token, if it has kept one.
func TestRefusedCertificate(t *testing.T) {
	w := newWorld(t, year, func(w *world, c *k3s.Cluster) { c.Token = w.Token() })
	w.RefuseCertificates = true
	client, _ := w.serials()
	w.run(w.config())
	w.pass(year + 24*time.Hour - 25*time.Hour)
	for c := client; c == client; c, _ = w.serials() {
		w.logged(slog.LevelInfo)
	}
	without := newWorld(t, year, nil)
	without.RefuseCertificates = true
	without.run(without.config())
	without.pass(year - time.Hour)
	for !strings.Contains(without.logged(slog.LevelWarn), "--keep-token") {
	}
}

// TestStrangeDirectory checks that a directory of another node is not used.
func TestStrangeDirectory(t *testing.T) {
	w := newWorld(t, year, nil)
	c := w.config()
	c.Node = "other"
	w.run(c)
	if text := w.logged(slog.LevelError); !strings.Contains(text, `"pi"`) || len(w.Requests()) > 0 {
		t.Error(text)
	}
}

// TestReplaced checks that a renewal writes nothing if a command replaces the directory of the cluster between two of its requests, and
// nothing while a command is running. The directory then has the files of the new cluster.
func TestReplaced(t *testing.T) {
	for _, path := range []string{"/v1-k3s/client-ca.crt", "/v1-k3s/server-ca.crt", "/v1-k3s/client-kubelet.crt", "/api/v1/nodes/pi", "/v1-k3s/serving-kubelet.crt"} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprint(path, ended), func(t *testing.T) {
				w := newWorld(t, year, nil)
				root := filepath.Dir(string(w.dir))
				both := append(slices.Clone(w.Serving.PEM), k3stest.NewCA(t, "next").PEM...)
				want := make(chan map[string]string, 1)
				command := sync.OnceFunc(func() {
					l, err := k3s.Lock(root)
					if err != nil {
						t.Error(err)
					}
					if ended { // two joins, after which the directory has its former path again
						store := func() error { return k3s.Store(root, w.other, nil, func() error { return nil }) }
						if err := errors.Join(store(), store(), l.Close()); err != nil {
							t.Error(err)
						}
					} else {
						t.Cleanup(func() { l.Close() })
					}
					want <- w.files()
				})
				w.Answer = func(a http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == path {
						command()
					}
					if r.URL.Path == "/v1-k3s/server-ca.crt" { // a CA that would be written
						a.Write(both)
						return true
					}
					return false
				}
				w.run(w.config())
				w.pass(year - 24*time.Hour)
				w.logged(slog.LevelWarn)
				expected := <-want
				r, err := w.dir.Record()
				if got := w.files(); !maps.Equal(got, expected) || err != nil || ended != (r.Node == "other") {
					t.Errorf("%v, %v: files were written", r, err)
				}
			})
		}
	}
}

// TestInterval checks that a certificate is not renewed again within an hour, even if it ends in a minute, that this is reported once, and
// that a certificate for other addresses comes at growing intervals.
func TestInterval(t *testing.T) {
	w := newWorld(t, time.Minute, nil)
	s, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	record, err := w.dir.Record()
	if err != nil {
		t.Fatal(err)
	}
	due := func() []k3s.Purpose {
		list, _ := s.due()
		return list
	}
	attempt := func() {
		t.Helper()
		w.Life = w.Now().Add(time.Minute).Sub(time.Now())
		if err := s.attempt(t.Context(), record, due()); err != nil || len(due()) > 0 {
			t.Fatal(err, due())
		}
	}
	w.advance(58 * time.Second)      // the clock is then 58 s after the start of the test
	if got := due(); len(got) != 2 { // the certificates of islet join
		t.Errorf("%v is due", got)
	}
	attempt()
	w.advance(10 * time.Minute)
	if got := due(); len(got) > 0 {
		t.Errorf("%v is due again", got)
	}
	for i, address := range []string{"192.0.2.8", "192.0.2.9", "192.0.2.8", "192.0.2.9"} {
		w.mu.Lock()
		w.ips = []string{address}
		w.mu.Unlock()
		waited := time.Duration(0)
		for ; len(due()) == 0; waited += time.Minute {
			w.advance(time.Minute)
		}
		if want := []time.Duration{0, 1, 2, 4}[i] * time.Minute; waited != want || !slices.Equal(due(), []k3s.Purpose{k3s.ForServing}) {
			t.Errorf("%s: %v after %v", address, due(), waited)
		}
		attempt()
	}
	close(w.logs)
	warnings := 0
	for r := range w.logs {
		if r.Level == slog.LevelWarn {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings", warnings)
	}
	w.advance(time.Hour)
	if got := due(); len(got) != 2 {
		t.Errorf("%v after an hour", got)
	}
	w.advance(-24 * time.Hour) // the clock was wrong
	if _, left := s.due(); left > maxSleep {
		t.Errorf("waits for %v", left)
	}
}
