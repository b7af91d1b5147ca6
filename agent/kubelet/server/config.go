package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
	"github.com/islet-edge/islet/agent/kubelet/server/local/images"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/local/pods"
	"github.com/islet-edge/islet/agent/kubelet/server/stats"
	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/runtime/cri"
)

// Usage measures the node and its pods.
type Usage interface {
	stats.Usage
	node.Usage
	pods.Usage
}

// Config configures a Server. New returns an error if Pods, Local, Runtime, Images, Usage, Decode or Log is not set.
// The paths for removing images and restarting pods require Garbage and Restart. All other functions, interfaces and
// pointers may be nil. The API then lacks the corresponding data or paths. It has more than 16 fields, because it is the sum of the
// configurations of the packages below: build.go splits it.
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

	Pods    pods.Lister
	Local   pods.Local
	Runtime cri.Runtime // if it does not implement cri.Streamer, the server is a proxy for exec, attach and port-forward
	Images  cri.Images  // imports of archives and the progress of pulls require cri.Archives

	// Flash returns the data for /stats/flash: for each cause of writes, the bytes that were written to the disk.
	Flash func(context.Context) *api.Flash
	// Garbage finds unused images.
	Garbage images.Garbage

	// Decode decodes a manifest for the local source. It sets the defaults and validates the result.
	Decode func(data []byte, origin string) (manifest.Set, error)
	// Objects manages the objects of manifests. If it is nil, manifests can contain only pods.
	Objects pods.Objects
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
	// Backup writes an archive of the node, for islet backup. It may be nil.
	Backup func(ctx context.Context, w io.Writer, o node.BackupOptions) error
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
	Debugging   bool                          // enableDebuggingHandlers: the paths of routeDebugging
	SystemLogs  string                        // directory of the host's logs; empty without enableSystemLogHandler
	Profiling   bool                          // enableProfilingHandler
	Config      *kubelet.KubeletConfiguration // for /configz, which responds with 404 if it is nil
	Flags       []string                      // all flags as name=value, sorted, for /flagz
	SetLevel    func(v int)                   // sets the log level on klog's scale; nil without enableDebugFlagsHandler
	Allocated   func(*v1.Pod) *v1.Pod         // for /allocatedPods: returns a pod with its allocated resources; nil without the gate
	Checkpoints string                        // directory of the archives of /checkpoint; empty without the gate

	CheckpointTimeout time.Duration // runtimeRequestTimeout, the minimum timeout of a checkpoint
}
