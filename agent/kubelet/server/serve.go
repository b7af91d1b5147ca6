package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/agent/kubelet/server/streams"
	"github.com/islet-edge/islet/internal/connlimit"
)

// Limits of a request and of a connection. The package response has the limits of a whole request.
const (
	headerTimeout = 10 * time.Second
	keepAlive     = 2 * time.Minute
	maxHeader     = 64 << 10
	maxStreams    = 64 // concurrent streams of an HTTP/2 connection
)

// serve serves ln until ctx ends, and then waits for the end of all requests. It uses TLS if config is not nil.
func (s *Server) serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { stop(streams.ErrStopping) })
	var running handlers
	hs := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !running.enter() {
				panic(http.ErrAbortHandler)
			}
			defer running.removeHandler()
			h.ServeHTTP(w, r)
		}),
		TLSConfig: config,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: keepAlive / 2, WriteByteTimeout: response.Timeout,
		},
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout, // also the timeout of a TLS handshake
		ReadTimeout:       response.Timeout,
		WriteTimeout:      response.Timeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	connlimit.Watch(hs)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), response.StopTimeout)
		defer cancel()
		if hs.Shutdown(grace) != nil {
			hs.Close()
		}
	}()
	var err error
	if config == nil {
		err = hs.Serve(ln)
	} else {
		err = hs.ServeTLS(ln, "", "")
	}
	cancel()
	<-stopped
	running.end()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handlers counts the running handlers. Unlike http.Server, it includes the handlers of hijacked connections.
type handlers struct {
	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup
}

// enter reports whether a new handler may start. If it returns true, removeHandler must be called when
// the handler returns.
func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.active.Add(1)
	}
	return !h.ended
}

func (h *handlers) removeHandler() { h.active.Done() }

// end prevents new handlers from starting and waits for the running ones.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.active.Wait()
}
