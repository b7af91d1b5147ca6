package node

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRefresh checks that the Node was read when Refresh returns. Callers that wait share a request. Without a link, Refresh ends with
// its context.
func TestRefresh(t *testing.T) {
	in(t, nil, func(w *world) {
		time.Sleep(time.Minute)
		var reads atomic.Int32
		count := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/nodes/n") {
				reads.Add(1)
			}
			return false
		}
		w.Fault.Store(&count)
		const callers = 20
		ended := make(chan error, callers)
		for range callers {
			go func() { ended <- w.Refresh(w.T.Context()) }()
		}
		for range callers {
			if err := <-ended; err != nil {
				w.Error(err)
			}
		}
		if n := reads.Load(); n < 1 || n > callers/2 {
			w.Errorf("%d requests for %d callers", n, callers)
		}
		n := w.node()
		n.Labels["new"] = "1"
		w.Put(n)
		if err := w.Refresh(w.T.Context()); err != nil || w.LastKnown().Labels["new"] != "1" {
			w.Errorf("%v, labels %v", err, w.LastKnown().Labels)
		}
		down := func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		w.Fault.Store(&down)
		ctx, cancel := context.WithTimeout(w.T.Context(), 5*time.Second)
		defer cancel()
		if err := w.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("without a link: %v", err)
		}
		w.Fault.Store(nil)
		if err := w.Refresh(w.T.Context()); err != nil {
			w.Error(err)
		}
	})
}
