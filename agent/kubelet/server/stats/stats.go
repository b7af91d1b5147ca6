package stats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/exposition"
)

// Pods returns the pods of this node. If it has the method ForEach, the metrics do not copy the pods.
type Pods interface {
	List() []*v1.Pod
}

// Runtime lists sandboxes and containers. cri.Runtime implements it.
type Runtime interface {
	ListPodSandbox(context.Context, *crapi.ListPodSandboxRequest) (*crapi.ListPodSandboxResponse, error)
	ListContainers(context.Context, *crapi.ListContainersRequest) (*crapi.ListContainersResponse, error)
}

// Usage measures the node and its pods.
type Usage interface {
	// StreamSummary returns the data for /stats/summary. If short is true, it measures only CPU and memory.
	StreamSummary(ctx context.Context, short bool) (*exposition.Summary, error)
	// Subjects returns the cgroups with their pods and containers.
	Subjects(ctx context.Context) ([]exposition.Subject, error)
	Machine(ctx context.Context) exposition.Machine
}

// Config configures Stats. Flash, LinkMetrics and Probes may be nil.
type Config struct {
	Version     string // of islet
	KubeVersion string // version of the corresponding kubelet, such as v1.37.2
	NodeName    string
	Started     time.Time

	Pods    Pods
	Runtime Runtime
	Usage   Usage
	// Flash returns the data for /stats/flash: for each cause of writes, the bytes that were written to the disk.
	Flash func(context.Context) *api.Flash

	Collectors  []prometheus.Collector     // added to /metrics
	LinkMetrics func() []exposition.Sample // added to /metrics; nil without a control plane
	Probes      prometheus.Collector       // added to /metrics/probes
	Log         *slog.Logger
}

// Stats serves measurements of the node, of its pods and of the agent. It measures nothing unless it is requested.
type Stats struct {
	Config
	gather func() (*exposition.Process, error) // returns the metrics of Collectors and of this process
	probes *prometheus.Registry
}

// New returns Stats.
func New(c Config) *Stats {
	s := &Stats{Config: c, probes: prometheus.NewRegistry()}
	s.gather = sync.OnceValues(func() (*exposition.Process, error) { return exposition.NewProcess(c.Started, c.Collectors...) })
	if c.Probes != nil {
		s.probes.MustRegister(c.Probes)
	}
	return s
}
