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

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/door"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/runtime/cri"
)

// Pods is the pods of this node.
type Pods interface {
	// List returns every pod with its newest status. Callers must not change them.
	List() []*v1.Pod
	// Changed returns a channel that is closed at the next change of a pod or its status. A caller
	// that gets it before List misses no change.
	Changed() <-chan struct{}
}

// Local is the source of pods for islet apply and delete.
type Local interface {
	Apply(ctx context.Context, pods []*v1.Pod) error
	// Delete ends a pod; a nil grace (seconds) means the pod's own.
	Delete(ctx context.Context, uid types.UID, grace *int64) error
}

// Usage measures the node and its pods.
type Usage interface {
	// Look returns the data for /stats/summary; short: only CPU and memory.
	Look(ctx context.Context, short bool) (*exposition.Look, error)
	// Subjects returns the cgroups with their pods and containers.
	Subjects(ctx context.Context) ([]exposition.Subject, error)
	Machine(ctx context.Context) exposition.Machine
	// Board returns the current values of the machine's sensors.
	Board() api.Board
	// IO returns the bytes that pods and containers have read from and written to disks.
	IO(ctx context.Context) ([]api.DiskIO, error)
}

// Garbage finds and removes unused images. *garbage.Garbage implements it.
type Garbage interface {
	// Prune removes all unused images; dry only lists them.
	Prune(ctx context.Context, dry bool) api.Pruned
	// Needed returns what needs the image with this ID; empty: nothing.
	Needed(ctx context.Context, id string) (string, error)
}

// Objects are the ConfigMaps, Secrets and claims of the node's manifests.
type Objects interface {
	List() []api.Object
	// Apply creates or updates objects that a user applied, all of them or none. dry only reports
	// the changes.
	Apply(ctx context.Context, objects []manifest.Object, dry bool) ([]api.Applied, error)
	// Delete removes an object that a user applied. With data the files of a claim are deleted too.
	Delete(ctx context.Context, kind, namespace, name string, data bool) api.Deleted
}

// Shutdown ends all pods in order, as at a shutdown of the machine.
type Shutdown interface {
	// Begin returns once all pods have ended; false: no grace period is configured.
	Begin(ctx context.Context) (configured bool, err error)
	// Cancel starts the pods again.
	Cancel(ctx context.Context) error
}

// Config configures a Server.
type Config struct {
	Version     string // of islet
	KubeVersion string // of the corresponding kubelet, such as v1.36.3
	NodeName    string
	LogsDir     string   // of pods, for containers that the runtime has removed
	Disks       []string // directories whose file systems Status shows

	// Ignored returns the fields of a pod that have no effect on this node, and a sentence for
	// each. Nil: all fields have an effect.
	Ignored func(*v1.Pod) (fields, sentences []string)

	Pods    Pods
	Local   Local
	Runtime cri.Runtime // exec, attach and port-forward are direct if it implements cri.Streamer
	Images  cri.Images  // import, and pull progress, need cri.Archives

	// Flash returns the data for /stats/flash: bytes written to the disk by cause. Nil: not
	// measured.
	Flash func(context.Context) *api.Flash
	// Garbage finds unused images.
	Garbage Garbage

	// Decode returns the pods and objects of manifests for the local source, with defaults and
	// validated.
	Decode func(data []byte, origin string) (manifest.Set, error)
	// Objects manages the objects of manifests. Nil: none are supported.
	Objects Objects
	// Describe completes the status with information of other parts of the node.
	Describe func(ctx context.Context, s *api.Status)
	// Details returns further information about a pod. Nil: none.
	Details func(types.UID) api.Details
	// Events returns the stored events of the node and all pods. Nil: none.
	Events func() []api.Event
	// Restart restarts a container. Nil: not supported.
	Restart func(uid types.UID, container, id string, grace time.Duration)
	// Accept ends the held pods. Nil: none are ever held.
	Accept func(ctx context.Context) (api.Accepted, error)
	// TakeOver assigns the node's name to this machine; with force even if another machine uses it.
	// Nil: no other machine can have it.
	TakeOver func(ctx context.Context, force bool) (api.TakenOver, error)
	Clock    Clock // nil: none
	// Devices returns the devices that containers can request; all: also those without a resource.
	// Nil: there are none.
	Devices func(all bool) ([]api.Device, error)
	// Shutdown ends all pods in order. Nil: not supported.
	Shutdown Shutdown
	// Configuration manages configurations of the whole node. Nil: not supported.
	Configuration Configurer
	// Updates installs other versions of islet. Nil: not supported.
	Updates Updater
	// Settings returns the agent's settings in a form that JSON can encode. Nil: unknown.
	Settings func() any
	// Usage measures the node and its pods.
	Usage Usage

	// Checks are the checks of healthz.
	Checks []Check
	// Kubelet configures the paths on the kubelet's ports.
	Kubelet Kubelet
	// Counted and Metrics extend /metrics, ProbeMetrics extends /metrics/probes; nil: nothing.
	Counted      []prometheus.Collector
	Metrics      func() []exposition.Sample
	ProbeMetrics prometheus.Collector

	// Page is the status page at PathPage of port 10250. Nil: none.
	Page http.Handler

	StreamIdleTimeout time.Duration // 0: 4 hours, as a kubelet
	Log               *slog.Logger
}

// Kubelet is the part of a kubelet's configuration that controls paths. The local socket has all
// paths.
type Kubelet struct {
	Debugging  bool                          // enableDebuggingHandlers: more than figures and pods
	SystemLogs string                        // directory of the host's logs; "": not enableSystemLogHandler
	Profiling  bool                          // enableProfilingHandler
	Config     *kubelet.KubeletConfiguration // for /configz; nil: 404
	Flags      []string                      // name=value of all flags, sorted; for /flagz
	SetLevel   func(v int)                   // sets a klog log level; nil: not enableDebugFlagsHandler
}

// A Server serves requests. Several listeners may share its handlers.
type Server struct {
	Config
	started time.Time
	kubelet mux // a kubelet's paths
	local   mux // a kubelet's and islet's own paths
	asked   *requests
	slis    slis
	counted func() (*exposition.Process, error) // Counted and process metrics; created by the first scrape
}

// Limits for a plain request; a stream sets its own.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = time.Minute
	keepAlive      = 2 * time.Minute
	stopTimeout    = 3 * time.Second
	maxHeader      = 64 << 10
	maxStreams     = 64 // of one HTTP/2 connection
)

// PathPage is the status page's path on port 10250.
const PathPage = "/page/"

// New returns a Server.
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
	s := &Server{Config: c, started: time.Now(), kubelet: newMux(), local: newMux(), asked: newRequests()}
	s.counted = sync.OnceValues(func() (*exposition.Process, error) {
		return exposition.NewProcess(s.started, append(s.asked.collectors(), c.Counted...)...)
	})
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

// Handler returns the handler for all paths, including islet's own. The caller must have
// authenticated the client by the local listener's check.
func (s *Server) Handler() http.Handler { return s.local }

// MaxLocal bounds the connections to the local socket.
const MaxLocal = 64

// Run serves a local listener (socket.Sockets.ListenLocal) until ctx ends and all requests have
// ended, which ctx causes.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	return s.serve(ctx, ln, s.local, nil)
}

// RunAPI serves a kubelet's port 10250: over TLS, for requests that guard admits.
func (s *Server) RunAPI(ctx context.Context, ln net.Listener, c *tls.Config, guard func(http.Handler) http.Handler) error {
	return s.serve(ctx, ln, guard(s.count("readwrite", s.kubelet)), c)
}

// RunReadOnly serves a kubelet's port 10255: figures and pods, without authentication.
func (s *Server) RunReadOnly(ctx context.Context, ln net.Listener) error {
	m := newMux()
	s.routeOpen(m)
	s.routeDisabled(m)
	return s.serve(ctx, ln, s.count("readonly", m), nil)
}

// RunHealthz serves a kubelet's port 10248.
func (s *Server) RunHealthz(ctx context.Context, ln net.Listener) error {
	m := newMux()
	s.routeHealthz(m)
	return s.serve(ctx, ln, m, nil)
}

// serve serves ln, with TLS if config is set, until ctx ends and all requests have ended.
func (s *Server) serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { stop(errStopping) })
	var running handlers
	hs := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !running.enter() {
				panic(http.ErrAbortHandler)
			}
			defer running.leave()
			h.ServeHTTP(w, r)
		}),
		TLSConfig: config,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: keepAlive / 2, WriteByteTimeout: requestTimeout,
		},
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout, // also for a TLS handshake
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	door.Watch(hs)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
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

// handlers counts the running handlers, including those of hijacked connections, which http.Server
// does not track.
type handlers struct {
	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup
}

// enter reports whether a new handler may start, and counts it.
func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.active.Add(1)
	}
	return !h.ended
}

func (h *handlers) leave() { h.active.Done() }

// end prevents new handlers and waits for the running ones.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.active.Wait()
}
