package resourceslice_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/resourceslice"
)

// A scene is a running Sweeper and a server that records deletions.
type scene struct {
	*testing.T
	*resourceslice.Sweeper
	mu    sync.Mutex
	asked []string // field selectors of the requests
	down  bool
}

func in(t *testing.T, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, server := &scene{T: t}, apitest.New(t)
		answer := func(w http.ResponseWriter, r *http.Request) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r.Method != http.MethodDelete || r.URL.Path != "/apis/resource.k8s.io/v1/resourceslices" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			if a := r.Header.Get("Accept"); !strings.Contains(a, "as=PartialObjectMetadataList;") { // as an API server requires
				t.Errorf("accepts %s", a)
			}
			if s.down {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			s.asked = append(s.asked, r.URL.Query().Get("fieldSelector"))
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
			return true
		}
		server.Fault.Store(&answer)
		client := server.Client(t)
		var err error
		s.Sweeper, err = resourceslice.New(resourceslice.Config{Client: client, Node: "n", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- s.Sweeper.Run(ctx) }()
		test(s)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		client.CloseConnections()
	})
}

// wants waits for the given duration. It then checks the deletions since the last call of this method.
func (s *scene) wants(after time.Duration, want ...string) {
	s.Helper()
	time.Sleep(after)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.asked, want) {
		s.Errorf("deleted %q, not %q", s.asked, want)
	}
	s.asked = nil
}

// TestStart checks that the slices of drivers that do not register are deleted once. The slices of other drivers must be kept.
func TestStart(t *testing.T) {
	in(t, func(s *scene) {
		s.wants(29*time.Second, []string{}...)
		s.wants(2*time.Second, "spec.nodeName=n")
		s.wants(time.Hour, []string{}...)
	})
	in(t, func(s *scene) {
		s.DriverConnected("b")
		s.DriverConnected("a")
		s.wants(31*time.Second, "spec.nodeName=n,spec.driver!=a,spec.driver!=b")
		s.wants(time.Hour, []string{}...)
	})
	in(t, func(s *scene) { // the driver disappears before the first deletion, so its slices are deleted later
		s.DriverConnected("a")
		time.Sleep(20 * time.Second)
		s.DriverGone("a")
		s.wants(11*time.Second, "spec.nodeName=n,spec.driver!=a")
		s.wants(20*time.Second, "spec.nodeName=n,spec.driver=a")
	})
}

// TestGone checks that the slices of a missing driver are deleted. The slices of a driver that returns or is replaced are kept.
func TestGone(t *testing.T) {
	in(t, func(s *scene) {
		s.DriverConnected("a")
		s.DriverConnected("b")
		s.wants(31*time.Second, "spec.nodeName=n,spec.driver!=a,spec.driver!=b")
		s.DriverGone("a")
		s.DriverGone("never")
		s.wants(29*time.Second, []string{}...)
		s.DriverConnected("a")
		s.wants(time.Hour, []string{}...)
		s.DriverGone("b")
		s.DriverGone("b") // the driver is still missing
		s.wants(31*time.Second, "spec.nodeName=n,spec.driver=b")
		s.wants(time.Hour, []string{}...)
		s.DriverConnected("b")
		s.DriverGone("b")
		s.wants(31*time.Second, "spec.nodeName=n,spec.driver=b")
	})
}

// TestOutage checks that a failed deletion is repeated when the API server is reachable. If the driver has returned, the deletion must not
// be repeated.
func TestOutage(t *testing.T) {
	in(t, func(s *scene) {
		s.wants(31*time.Second, "spec.nodeName=n")
		s.DriverConnected("a")
		s.DriverConnected("b")
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		s.DriverGone("a")
		s.DriverGone("b")
		s.wants(time.Hour, []string{}...)
		s.DriverConnected("b")
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		s.wants(10*time.Minute, "spec.nodeName=n,spec.driver=a")
	})
}
