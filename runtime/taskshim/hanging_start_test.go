package taskshim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A silentPod is a pod whose shims do not answer one method.
type silentPod struct {
	*Shim
	request wire.RunRequest
	gone    <-chan struct{}
	ended   chan wire.Container
	held    *atomic.Bool    // whether islet's shim refuses to hold streams before they are released
	answer  func()          // answers the method
	calls   func() []string // methods that the containerd shim was called with
	close   func()
}

// newSilentPod connects a Shim to a containerd shim and to a shim of islet in the bubble. Neither answers the method.
func newSilentPod(t *testing.T, dir, silent string) *silentPod {
	t.Helper()
	s, far, gone := pipeShim()
	p := &silentPod{Shim: s, gone: gone, ended: make(chan wire.Container, 1)}
	p.request = wire.RunRequest{ID: "c1", Bundle: filepath.Join(dir, "c1")}
	if err := os.MkdirAll(p.request.Bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	closing := make(chan struct{})
	p.answer, p.held = sync.OnceFunc(func() { close(closing) }), &atomic.Bool{}
	var mu sync.Mutex
	var calls []string
	p.calls = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
	wait := func(method string) error {
		mu.Lock()
		calls = append(calls, method)
		mu.Unlock()
		if method == silent || method == "State" {
			<-closing
		}
		return nil
	}
	s.service = "task"
	end := serveTask(t, far, s.service, wait)
	near, streams := net.Pipe()
	go func() {
		for in := bufio.NewScanner(streams); in.Scan(); {
			var r wire.Request
			if json.Unmarshal(in.Bytes(), &r) != nil || r.Method == silent {
				continue
			}
			reply := wire.Reply{ID: r.ID, Body: json.RawMessage("{}")}
			switch {
			case r.Method == wire.MethodLetGo:
				p.held.Store(false)
			case r.Method == wire.MethodHold && p.held.Load():
				reply.Error, reply.Kind = "it is held already", wire.Conflict
			}
			b, _ := json.Marshal(reply) // cannot fail
			streams.Write(append(b, '\n'))
		}
	}()
	client := shim.NewClient(near, "", func(wire.Container) {}, func() {})
	s.c.Bundles, s.c.Logger = dir, slog.New(slog.DiscardHandler)
	s.c.Streams = func(context.Context) (*shim.Client, error) { return client, nil }
	s.c.Connected = func() *shim.Client { return client }
	s.c.Ended = func(c wire.Container) { p.ended <- c }
	s.c.OOM = func(string) bool { return false }
	p.close = func() {
		s.Close()
		p.answer()
		end()
		client.Close()
	}
	return p
}

// TestUnansweredStart checks a start that does not end: the containerd shim does not answer, or islet's shim, which serves the streams. The
// start fails after RunTimeout. A containerd shim that does not answer then counts as dead. The request stays in the bundle, so that the
// shim program deletes the container.
func TestUnansweredStart(t *testing.T) {
	for method, abandoned := range map[string]bool{"Create": true, "Start": true, wire.MethodHold: false} {
		t.Run(method, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				p := newSilentPod(t, dir, method)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, err := p.Run(ctx, p.request)
				if took := time.Since(began); err == nil || errors.Is(err, ErrGone) != abandoned || took != RunTimeout {
					t.Errorf("%v after %s", err, took)
				}
				if abandoned {
					<-p.gone
				}
				if p.Connected() == abandoned {
					t.Error("the shim is connected:", p.Connected())
				}
				if _, err := p.readRunRequest("c1"); (err == nil) != abandoned {
					t.Error("the request in the bundle:", err)
				}
				p.close()
			})
		})
	}
}

// TestLimitedStart checks the stop of a container whose start does not end. The shim counts as dead after killTimeout, unless the caller
// has stopped waiting, or the container has ended, or the shim starts another container.
func TestLimitedStart(t *testing.T) {
	dir := t.TempDir()
	always := func() bool { return true }
	synctest.Test(t, func(t *testing.T) {
		p := newSilentPod(t, dir, "Create")
		result := make(chan error, 1)
		go func() {
			_, err := p.Run(t.Context(), p.request)
			result <- err
		}()
		synctest.Wait()
		p.LimitStart("c1", always).Stop()
		other := p.LimitStart("c2", always)
		ended := p.LimitStart("c1", func() bool { return false })
		time.Sleep(killTimeout)
		synctest.Wait()
		if other.Stop() || ended.Stop() || len(result) > 0 || !p.Connected() {
			t.Error("the start of a container that does not stop was ended")
		}
		began := time.Now()
		defer p.LimitStart("c1", always).Stop()
		if err := <-result; !errors.Is(err, ErrGone) || time.Since(began) != killTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		<-p.gone
		p.close()
	})
}

// TestUnansweredStartBesideOthers checks a start that does not end while another container of the pod is running. The start fails after
// RunTimeout, but the shim counts as dead only when the pod is stopped. A container that starts later is killed and removed.
func TestUnansweredStartBesideOthers(t *testing.T) {
	for name, test := range map[string]struct {
		silent string
		late   bool
		calls  string
	}{
		"it is created later": {"Create", true, "Create Delete"},
		"it starts later":     {"Start", true, "Create Start Kill Wait Delete"},
		"the pod is stopped":  {"Start", false, "Create Start State"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				p := newSilentPod(t, dir, test.silent)
				p.c.ID, p.c.Program = "pod", filepath.Join(dir, "missing")
				p.running["pod"], p.running["c2"] = true, true
				began := time.Now()
				_, err := p.Run(t.Context(), p.request)
				if !errors.Is(err, ErrNotStarted) || errors.Is(err, ErrGone) || time.Since(began) != RunTimeout {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				if _, err := p.Run(t.Context(), p.request); !errdefs.IsFailedPrecondition(err) {
					t.Errorf("a second start: %v", err)
				}
				if !p.Connected() {
					t.Error("the shim was abandoned")
				}
				if test.late {
					p.answer()
					synctest.Wait()
					if _, err := p.readRunRequest("c1"); !errors.Is(err, os.ErrNotExist) || p.IsStarting("c1") || !p.Connected() {
						t.Errorf("the container was not removed: %v", err)
					}
				} else {
					began = time.Now()
					if err := p.Discard(t.Context(), "c1"); err == nil || time.Since(began) != killTimeout { // its program is missing
						t.Errorf("%v after %s", err, time.Since(began))
					}
					<-p.gone
				}
				p.close()
				if got := strings.Join(p.calls(), " "); got != test.calls {
					t.Errorf("calls %q, want %q", got, test.calls)
				}
			})
		})
	}
}

// TestStreamsHeldAlready checks a start whose streams islet's shim already serves. islet's shim releases the old streams and serves the new
// ones.
func TestStreamsHeldAlready(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := newSilentPod(t, dir, "")
		p.held.Store(true)
		if _, err := p.Run(t.Context(), p.request); err != nil {
			t.Error(err)
		}
		p.close()
	})
}

// TestUnansweredLetGo checks the end of a container whose streams are not released. The end is reported after streamsTimeout.
func TestUnansweredLetGo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := newSilentPod(t, dir, wire.MethodLetGo)
		began := time.Now()
		if _, err := p.Run(t.Context(), p.request); err != nil {
			t.Fatal(err)
		}
		if c := <-p.ended; c.ID != "c1" || time.Since(began) != streamsTimeout {
			t.Errorf("%v after %s", c, time.Since(began))
		}
		p.close()
	})
}
