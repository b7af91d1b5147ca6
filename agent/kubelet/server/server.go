package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
	"github.com/islet-edge/islet/agent/kubelet/server/local/images"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/logs"
	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/agent/kubelet/server/stats"
	"github.com/islet-edge/islet/agent/kubelet/server/streams"
	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/connlimit"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/runtime/cri"
)

// Pods returns the pods of this node. *pods.Pods implements it.
type Pods interface {
	// List returns every pod with its newest status. Callers must not change the pods.
	List() []*v1.Pod
	// Changed returns a channel that is closed at the next change of a pod or its status. A caller that calls Changed
	// before List misses no change.
	Changed() <-chan struct{}
}

// Local is the source of pods for islet apply and delete.
type Local interface {
	Apply(ctx context.Context, pods []*v1.Pod) error
	// Delete ends a pod with a grace period in seconds. If grace is nil, the pod's own grace period is used.
	Delete(ctx context.Context, uid types.UID, grace *int64) error
	// AddEphemeral adds an ephemeral container to a pod of any source but the API server. The parameter add must return a copy of the
	// pod with the container.
	AddEphemeral(ctx context.Context, uid types.UID, add func(*v1.Pod) (*v1.Pod, error)) error
}

// Usage measures the node and its pods.
type Usage interface {
	stats.Usage
	node.Usage
	// PodProcesses returns the processes of a pod's running containers.
	PodProcesses(ctx context.Context, uid string) (api.Processes, error)
}

// Objects are the ConfigMaps, Secrets and claims of the node's manifests.
type Objects interface {
	List() []api.Object
	// Apply creates or updates objects that a user applied. If it fails, it changes no object. If dry is
	// true, Apply only reports the changes.
	Apply(ctx context.Context, objects []manifest.Object, dry bool) ([]api.Applied, error)
	// Delete removes an object that a user applied. If the parameter data is true, Delete also deletes the files of a
	// claim.
	Delete(ctx context.Context, kind, namespace, name string, data bool) api.Deleted
}

// Config configures a Server. New returns an error if Pods, Local, Runtime, Images, Usage, Decode or Log is not set.
// The paths for removing images and restarting pods require Garbage and Restart. All other functions, interfaces and
// pointers may be nil. The API then lacks the corresponding data or paths.
type Config struct {
	Version     string // of islet
	KubeVersion string // version of the corresponding kubelet, such as v1.37.2
	NodeName    string
	LogsDir     string   // directory of the pods' logs, for containers that the runtime has removed
	Disks       []string // directories whose file systems the status contains

	// IgnoredFields returns the fields of a pod that have no effect on this node, and a sentence about each of them.
	IgnoredFields func(*v1.Pod) (fields, sentences []string)
	// FindRejections returns for each pod of a manifest why the node would reject it at present, or "". May be nil.
	FindRejections func([]*v1.Pod) []string
	// PortConflicts returns one sentence for each host port of the pods at which a program of the host listens.
	PortConflicts func(pods []*v1.Pod) map[types.UID][]string

	Pods    Pods
	Local   Local
	Runtime cri.Runtime // if it does not implement cri.Streamer, the server is a proxy for exec, attach and port-forward
	Images  cri.Images  // imports of archives and the progress of pulls require cri.Archives

	// Flash returns the data for /stats/flash: for each cause of writes, the bytes that were written to the disk.
	Flash func(context.Context) *api.Flash
	// Garbage finds unused images.
	Garbage images.Garbage

	// Decode decodes a manifest for the local source. It sets the defaults and validates the result.
	Decode func(data []byte, origin string) (manifest.Set, error)
	// Objects manages the objects of manifests. If it is nil, manifests can contain only pods.
	Objects Objects
	// Describe adds information about other parts of the node to the status.
	Describe func(ctx context.Context, s *api.Status)
	// Details returns information about a pod that the Pod object does not contain.
	Details func(types.UID) api.Details
	// Origin returns the file, URL, command or API server that a pod comes from, or "" if it is unknown.
	Origin func(types.UID) string
	// Events returns the stored events of the node and all pods.
	Events func() []api.Event
	// ContainerRoot opens the root directory of a running container. If it is nil, containerfiles.Open is used.
	ContainerRoot func(ctx context.Context, id string) (*containerfiles.Root, error)
	// Restart restarts a container.
	Restart func(uid types.UID, container, id string, grace time.Duration)
	// Accept ends the pods on hold.
	Accept func(ctx context.Context) (api.Accepted, error)
	// TakeOver assigns the node's name to this machine. If force is true, this machine gets the name even if another
	// machine uses it.
	TakeOver func(ctx context.Context, force bool) (api.TakenOver, error)
	Clock    node.Clock
	// Devices returns the devices that containers can request. If the parameter all is true, it also returns devices
	// that belong to no resource.
	Devices func(all bool) ([]api.Device, error)
	// Shutdown ends all pods in order.
	Shutdown node.Shutdown
	// Configuration manages configurations of the whole node.
	Configuration node.Configurer
	// Updates installs other versions of islet.
	Updates node.Updater
	// Bundles returns the facts about the node that islet bundle node and islet key recipient print.
	Bundles node.BundleNode
	// BundleTrials applies and reverts bundles.
	BundleTrials node.BundleTrials
	// Settings returns the agent's settings as a value that can be encoded as JSON.
	Settings func() any
	// Usage measures the node and its pods.
	Usage Usage

	// Checks are the checks of healthz.
	Checks []zpages.Check
	// Kubelet configures the paths on the kubelet's ports.
	Kubelet Kubelet
	// Collectors and Metrics are added to /metrics, and ProbeMetrics to /metrics/probes.
	Collectors   []prometheus.Collector
	Metrics      func() []exposition.Sample
	ProbeMetrics prometheus.Collector

	// Page is the status page at PathPage of port 10250.
	Page http.Handler

	StreamIdleTimeout time.Duration // 0 means the default of a kubelet, 4 hours
	Log               *slog.Logger
}

// Kubelet is the part of a kubelet's configuration that controls which paths the kubelet's ports have. The local socket
// has all paths.
type Kubelet struct {
	Debugging  bool                          // enableDebuggingHandlers: the paths of routeDebugging
	SystemLogs string                        // directory of the host's logs; empty without enableSystemLogHandler
	Profiling  bool                          // enableProfilingHandler
	Config     *kubelet.KubeletConfiguration // for /configz, which responds with 404 if it is nil
	Flags      []string                      // all flags as name=value, sorted, for /flagz
	SetLevel   func(v int)                   // sets the log level on klog's scale; nil without enableDebugFlagsHandler
	Allocated  func(*v1.Pod) *v1.Pod         // for /allocatedPods: returns a pod with its allocated resources; nil without the feature gate
}

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
	images        *images.Images
	node          *node.Node
	copies        chan struct{} // an element for each copy of a container's files
}

// Limits of a request and of a connection. The package response has those of a whole request.
const (
	headerTimeout = 10 * time.Second
	keepAlive     = 2 * time.Minute
	maxHeader     = 64 << 10
	maxStreams    = 64 // concurrent streams of an HTTP/2 connection
)

// PathPage is the path of the status page on port 10250.
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
	s := &Server{Config: c, started: time.Now(), kubelet: newMux(), local: newMux(), requestCounts: newRequests(),
		copies: make(chan struct{}, maxCopies)}
	s.buildHandlers()
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

// buildHandlers creates the packages that serve the paths.
func (s *Server) buildHandlers() {
	c := &s.Config
	s.pages = zpages.New(zpages.Config{
		Version: c.Version, KubeVersion: c.KubeVersion, Started: s.started, Checks: c.Checks, Configuration: c.Kubelet.Config,
		Flags: c.Kubelet.Flags, SetLogLevel: c.Kubelet.SetLevel, Log: c.Log,
	})
	s.lister = podlist.New(podlist.Config{Pods: c.Pods, Runtime: c.Runtime, Allocated: c.Kubelet.Allocated})
	s.streams = streams.New(streams.Config{Pods: c.Pods, Runtime: c.Runtime, IdleTimeout: c.StreamIdleTimeout, Log: c.Log})
	s.logs = logs.New(logs.Config{Pods: c.Pods, Runtime: c.Runtime, Dir: c.LogsDir, SystemDir: c.Kubelet.SystemLogs,
		IdleTimeout: c.StreamIdleTimeout})
	s.stats = stats.New(stats.Config{
		Version: c.Version, KubeVersion: c.KubeVersion, NodeName: c.NodeName, Started: s.started, Pods: c.Pods, Runtime: c.Runtime,
		Usage: c.Usage, Flash: c.Flash, LinkMetrics: c.Metrics, Probes: c.ProbeMetrics, Log: c.Log,
		Collectors: slices.Concat(s.requestCounts.collectors(), s.streams.Collectors(), c.Collectors),
	})
	layers, _ := c.Images.(cri.Layers)
	s.node = node.New(node.Config{
		Version: c.Version, Name: c.NodeName, Usage: c.Usage, Layers: layers, Events: c.Events, Accept: c.Accept, TakeOver: c.TakeOver,
		Devices: c.Devices, Clock: c.Clock, Shutdown: c.Shutdown, Configuration: c.Configuration, Updates: c.Updates, Bundles: c.Bundles,
		BundleTrials: c.BundleTrials, IdleTimeout: c.StreamIdleTimeout, Log: c.Log,
	})
	s.images = images.New(images.Config{Pods: c.Pods, Store: c.Images, Garbage: c.Garbage, IdleTimeout: c.StreamIdleTimeout})
}

// Handler returns the handler for all paths, including islet's own. It does not authenticate clients. The listener of the
// local socket does this.
func (s *Server) Handler() http.Handler { return s.local }

// PodNeeding returns a pod that needs an image, or an empty text if no pod needs it.
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

// RunAPI serves a kubelet's port 10250 over TLS. It wraps the handler with the function guard, which adds the
// rejection of unauthorized requests.
func (s *Server) RunAPI(ctx context.Context, ln net.Listener, c *tls.Config, guard func(http.Handler) http.Handler) error {
	return s.serve(ctx, ln, guard(s.countRequests("readwrite", s.kubelet)), c)
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

// handlers counts the running handlers. Unlike http.Server, it includes those of hijacked connections.
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
