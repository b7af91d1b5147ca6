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
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A silentPod is a pod whose shims do not answer one method.
type silentPod struct {
	*Shim
	request wire.RunRequest
	gone    <-chan struct{}
	ended   chan wire.Container
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
	wait := func(method string) error {
		if method == silent {
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
			b, _ := json.Marshal(wire.Reply{ID: r.ID, Body: json.RawMessage("{}")}) // cannot fail
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
		close(closing)
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
// has stopped waiting, or the shim starts another container.
func TestLimitedStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := newSilentPod(t, dir, "Create")
		result := make(chan error, 1)
		go func() {
			_, err := p.Run(t.Context(), p.request)
			result <- err
		}()
		synctest.Wait()
		p.LimitStart("c1").Stop()
		other := p.LimitStart("c2")
		time.Sleep(killTimeout)
		synctest.Wait()
		if other.Stop() || len(result) > 0 || !p.Connected() {
			t.Error("the start of a container that does not stop was ended")
		}
		began := time.Now()
		defer p.LimitStart("c1").Stop()
		if err := <-result; !errors.Is(err, ErrGone) || time.Since(began) != killTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		<-p.gone
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
