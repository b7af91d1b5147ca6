package streams

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
)

// Pods returns the pods of this node.
type Pods interface {
	List() []*v1.Pod
}

// Runtime runs commands and returns URLs of streams. cri.Runtime implements it. If it also implements cri.Streamer, its streams are used
// directly. Otherwise requests are forwarded to the URLs.
type Runtime interface {
	podlist.States
	ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error)
	ExecSync(context.Context, *api.ExecSyncRequest) (*api.ExecSyncResponse, error)
	Exec(context.Context, *api.ExecRequest) (*api.ExecResponse, error)
	Attach(context.Context, *api.AttachRequest) (*api.AttachResponse, error)
	PortForward(context.Context, *api.PortForwardRequest) (*api.PortForwardResponse, error)
	CheckpointContainer(context.Context, *api.CheckpointContainerRequest) (*api.CheckpointContainerResponse, error)
}

// Config configures Streams.
type Config struct {
	Pods              Pods
	Runtime           Runtime
	CheckpointsDir    string        // directory of the archives that Checkpoint creates
	CheckpointTimeout time.Duration // minimum timeout of a checkpoint
	IdleTimeout       time.Duration // a stream ends if nothing is transferred for this time
	Log               *slog.Logger
}

// Streams serves exec, attach, port-forward and checkpoint.
type Streams struct {
	Config
	sockets *prometheus.CounterVec // sessions over a WebSocket
}

// New returns Streams.
func New(c Config) *Streams {
	return &Streams{c, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_websocket_streaming_requests_total",
		Help: "number of exec, attach and port-forward requests over a WebSocket that the node serves itself"},
		[]string{"subresource"})}
}

// Collectors returns the metrics of the sessions.
func (s *Streams) Collectors() []prometheus.Collector { return []prometheus.Collector{s.sockets} }
