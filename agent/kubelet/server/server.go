package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/local/images"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/local/pods"
	"github.com/islet-edge/islet/agent/kubelet/server/local/status"
	"github.com/islet-edge/islet/agent/kubelet/server/logs"
	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/stats"
	"github.com/islet-edge/islet/agent/kubelet/server/streams"
	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
)

// A Server serves the HTTP API. Several listeners may share its handlers.
type Server struct {
	Config
	started       time.Time
	kubelet       mux // a kubelet's paths
	local         mux // a kubelet's paths and islet's own
	requestCounts *requests
	pages         *zpages.Pages
	lister        *podlist.Lister
	streams       *streams.Streams
	logs          *logs.Logs
	stats         *stats.Stats
	status        *status.Status
	pods          *pods.Pods
	images        *images.Images
	node          *node.Node
}

// PathPage is the path of the status page on port 10250.
const PathPage = "/page/"

// New returns a Server that does not listen yet. It returns an error if a required field of c is nil.
func New(c Config) (*Server, error) {
	switch {
	case c.Pods == nil || c.Local == nil || c.Runtime == nil || c.Images == nil || c.Usage == nil:
		return nil, errors.New("server: Pods, Local, Runtime, Images and Usage must be set")
	case c.Decode == nil || c.Log == nil:
		return nil, errors.New("server: Decode and Log must be set")
	}
	if c.StreamIdleTimeout == 0 {
		c.StreamIdleTimeout = 4 * time.Hour
	}
	s := &Server{Config: c, started: time.Now(), kubelet: newMux(), local: newMux(), requestCounts: newRequests()}
	s.buildKubelet()
	s.buildLocal()
	s.routeOpen(s.kubelet)
	if c.Kubelet.Debugging {
		s.routeDebugging(s.kubelet)
	} else {
		s.routeDisabled(s.kubelet)
	}
	if c.Page != nil {
		s.kubelet.HandleFunc("GET "+PathPage, c.Page.ServeHTTP)
	}
	s.routeOpen(s.local)
	s.routeDebugging(s.local)
	s.routeIslet(s.local)
	return s, nil
}

// Handler returns the handler for all paths, including islet's own. It does not authenticate clients. The listener of the
// local socket does this.
func (s *Server) Handler() http.Handler { return s.local }

// PodNeeding returns "pod NAMESPACE/NAME" of a pod that uses the image, or "" if no pod uses it.
func (s *Server) PodNeeding(ctx context.Context, ref string) (string, error) {
	return s.images.PodNeeding(ctx, ref)
}

// MaxLocal is the maximum number of connections to the local socket.
const MaxLocal = 64

// Run serves the local socket until ctx ends. The listener must come from socket.Sockets.ListenLocal. At the
// end Run cancels all requests and waits for them.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	return s.serve(ctx, ln, s.local, nil)
}

// RunAPI serves a kubelet's port 10250 over TLS. It wraps the handler with filter, which rejects unauthorized requests. RunAPI also rejects
// requests that a page in a browser may have caused.
func (s *Server) RunAPI(ctx context.Context, ln net.Listener, c *tls.Config, filter func(http.Handler) http.Handler) error {
	return s.serve(ctx, ln, rejectBrowsers(filter(s.countRequests("readwrite", s.kubelet)), s.Log), c)
}

// RunReadOnly serves a kubelet's port 10255. It provides metrics and pods without authentication.
func (s *Server) RunReadOnly(ctx context.Context, ln net.Listener) error {
	m := newMux()
	s.routeOpen(m)
	s.routeDisabled(m)
	return s.serve(ctx, ln, s.countRequests("readonly", m), nil)
}

// RunHealthz serves a kubelet's port 10248. It has only the health checks.
func (s *Server) RunHealthz(ctx context.Context, ln net.Listener) error {
	m := newMux()
	m.addPaths(s.pages.HealthPaths())
	return s.serve(ctx, ln, m, nil)
}
