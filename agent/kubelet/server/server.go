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

// Pods are the pods of this node.
type Pods interface {
	// List returns every pod with its newest status. Nobody changes what it returns.
	List() []*v1.Pod
	// Changed returns a channel that is closed at the next change of a pod or its
	// status. Whoever takes it before List misses nothing.
	Changed() <-chan struct{}
}

// Local is the source of pods that a person feeds with islet apply and delete.
type Local interface {
	Apply(ctx context.Context, pods []*v1.Pod) error
	// Delete ends a pod; a nil grace (seconds) is the pod's own.
	Delete(ctx context.Context, uid types.UID, grace *int64) error
}

// Usage measures the node and its pods.
type Usage interface {
	// Look is the answer of /stats/summary; short: of CPU and memory only.
	Look(ctx context.Context, short bool) (*exposition.Look, error)
	// Subjects are the cgroups with who they are.
	Subjects(ctx context.Context) ([]exposition.Subject, error)
	Machine(ctx context.Context) exposition.Machine
	// Board are the sensors of the machine, read now.
	Board() api.Board
	// IO is what pods and containers have read from disks and written to them.
	IO(ctx context.Context) ([]api.DiskIO, error)
}

// Garbage says which images go and which stay. *garbage.Garbage is one.
type Garbage interface {
	// Prune removes every image that nothing needs; dry only says which.
	Prune(ctx context.Context, dry bool) api.Pruned
	// Needed is who needs an image, by its ID; empty: nobody.
	Needed(ctx context.Context, id string) (string, error)
}

// Objects are the ConfigMaps, Secrets and claims that manifests of this node hold.
type Objects interface {
	List() []api.Object
	// Apply adds objects to those that a person applied, or changes them, all or none. dry
	// only says what that would do.
	Apply(ctx context.Context, objects []manifest.Object, dry bool) ([]api.Applied, error)
	// Delete removes one that a person applied. The data of a claim stays unless told.
	Delete(ctx context.Context, kind, namespace, name string, data bool) api.Deleted
}

// Shutdown ends all pods in order, as if the machine went off.
type Shutdown interface {
	// Begin returns once that is done; false: nobody said how long they may take.
	Begin(ctx context.Context) (configured bool, err error)
	// Cancel lets them run again.
	Cancel(ctx context.Context) error
}

// Config is what a Server needs.
type Config struct {
	Version     string // of islet
	KubeVersion string // of the kubelet it stands for, such as v1.36.3
	NodeName    string
	LogsDir     string   // pod logs, when the runtime does not know a container any more
	Disks       []string // directories whose file systems Status shows

	// Ignored are the fields of a pod that do not act on this node, and a sentence of each. Nil:
	// all of them act.
	Ignored func(*v1.Pod) (fields, sentences []string)

	Pods    Pods
	Local   Local
	Runtime cri.Runtime // exec, attach and port-forward are direct if it is a cri.Streamer
	Images  cri.Images  // import, and pull with progress, if it is cri.Archives

	// Flash is the answer of /stats/flash: what was written to the disk, by what. Nil: nobody
	// counts.
	Flash func(context.Context) *api.Flash
	// Garbage knows which images something needs.
	Garbage Garbage

	// Decode makes pods and objects of the local source from manifests, with defaults and
	// validated.
	Decode func(data []byte, origin string) (manifest.Set, error)
	// Objects are those of manifests. Nil: none are taken.
	Objects Objects
	// Describe adds to the status what only package agent knows: sources, imports, store, problems.
	Describe func(ctx context.Context, s *api.Status)
	// Details adds to a pod what only package agent knows. Nil: nothing.
	Details func(types.UID) api.Details
	// Events are those of the node and of all pods that are kept. Nil: none.
	Events func() []api.Event
	// Restart has a container run anew. Nil: it is not asked for.
	Restart func(uid types.UID, container, id string, grace time.Duration)
	// Accept ends the pods that are held. Nil: none ever are.
	Accept func(ctx context.Context) (api.Accepted, error)
	// TakeOver gives the name of the node to this machine, also from another one that uses it if
	// force is set. Nil: nobody else can have it.
	TakeOver func(ctx context.Context, force bool) (api.TakenOver, error)
	Clock    Clock // nil: none
	// Devices are those that containers can ask for; all: also those that no resource has.
	// Nil: there are none.
	Devices func(all bool) ([]api.Device, error)
	// Shutdown ends all pods in order. Nil: nothing does.
	Shutdown Shutdown
	// Configuration takes configurations of the whole node. Nil: none.
	Configuration Configurer
	// Updates takes other versions of islet. Nil: none.
	Updates Updater
	// Settings are those of the agent, as JSON can hold them. Nil: they are not known.
	Settings func() any
	// Usage measures the node and its pods.
	Usage Usage

	// Checks are what healthz asks, besides whether anything answers at all.
	Checks []Check
	// Kubelet says what is open on the kubelet's ports.
	Kubelet Kubelet
	// Counted and Metrics add to /metrics, ProbeMetrics to /metrics/probes; nil: nothing.
	Counted      []prometheus.Collector
	Metrics      func() []exposition.Sample
	ProbeMetrics prometheus.Collector

	// Page is the status page, which port 10250 has at PathPage. Nil: there is none.
	Page http.Handler

	StreamIdleTimeout time.Duration // 0: 4 hours, as a kubelet
	Log               *slog.Logger
}

// Kubelet is the part of a kubelet's configuration that decides about paths. The
// local socket has all of them.
type Kubelet struct {
	Debugging  bool                          // enableDebuggingHandlers: more than figures and pods
	SystemLogs string                        // directory of the host's logs; "": not enableSystemLogHandler
	Profiling  bool                          // enableProfilingHandler
	Config     *kubelet.KubeletConfiguration // for /configz; nil: it answers 404
	Flags      []string                      // name=value of all that there are, in order; for /flagz
	SetLevel   func(v int)                   // takes a log level of klog's; nil: not enableDebugFlagsHandler
}

// A Server answers requests. Its handlers may be used by several listeners.
type Server struct {
	Config
	started time.Time
	kubelet mux // what a kubelet answers
	local   mux // the same and islet's own
	asked   *requests
	slis    slis
	counted func() (*exposition.Process, error) // Counted, asked, and figures of the process: made by the first scrape
}

// Bounds of a plain request; a stream sets its own.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = time.Minute
	keepAlive      = 2 * time.Minute
	stopTimeout    = 3 * time.Second
	maxHeader      = 64 << 10
	maxStreams     = 64 // of one HTTP/2 connection
)

// PathPage is where port 10250 has the status page.
const PathPage = "/page/"

// New prepares a Server.
func New(c Config) (*Server, error) {
	switch {
	case c.Pods == nil || c.Local == nil || c.Runtime == nil || c.Images == nil || c.Usage == nil:
		return nil, errors.New("server: Pods, Local, Runtime, Images and Usage are needed")
	case c.Decode == nil || c.Log == nil:
		return nil, errors.New("server: Decode and Log are needed")
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

// Handler answers everything, islet's own paths too: it is for who passed a
// local listener's check.
func (s *Server) Handler() http.Handler { return s.local }

// MaxLocal bounds the connections to the local socket.
const MaxLocal = 64

// Run answers on ln, which is a local one (socket.Sockets.ListenLocal), until ctx ends and
// every request has, which the end of ctx makes soon.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	return s.serve(ctx, ln, s.local, nil)
}

// RunAPI answers what a kubelet's port 10250 does: over TLS, and what guard lets
// through.
func (s *Server) RunAPI(ctx context.Context, ln net.Listener, c *tls.Config, guard func(http.Handler) http.Handler) error {
	return s.serve(ctx, ln, guard(s.count("readwrite", s.kubelet)), c)
}

// RunReadOnly answers what a kubelet's port 10255 does: figures and pods, to
// anybody.
func (s *Server) RunReadOnly(ctx context.Context, ln net.Listener) error {
	m := newMux()
	s.routeOpen(m)
	s.routeDisabled(m)
	return s.serve(ctx, ln, s.count("readonly", m), nil)
}

// RunHealthz answers what a kubelet's port 10248 does.
func (s *Server) RunHealthz(ctx context.Context, ln net.Listener) error {
	m := newMux()
	s.routeHealthz(m)
	return s.serve(ctx, ln, m, nil)
}

// serve answers on ln, by TLS with a config, until ctx ends and every request has.
func (s *Server) serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout, // and that of a handshake
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

// handlers counts those that run, also the ones of connections taken over, which
// an http.Server forgets.
type handlers struct {
	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup
}

// enter says whether a handler may still begin.
func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.active.Add(1)
	}
	return !h.ended
}

func (h *handlers) leave() { h.active.Done() }

// end returns when every handler has, and lets no other begin.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.active.Wait()
}
