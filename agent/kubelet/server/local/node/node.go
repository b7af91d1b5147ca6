package node

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/cri"
)

// Usage measures the node and its pods.
type Usage interface {
	// Board returns the current values of the machine's sensors.
	Board() api.Board
	// IO returns the bytes that pods and containers have read from and written to disks.
	IO(ctx context.Context) ([]api.DiskIO, error)
}

// Config configures a Node. All functions and interfaces except Usage may be nil. The API then lacks the corresponding data or paths.
type Config struct {
	Version, Name string
	Usage         Usage
	Layers        cri.Layers
	// Events returns the stored events of the node and all pods.
	Events func() []api.Event
	// Accept ends the pods on hold.
	Accept func(ctx context.Context) (api.Accepted, error)
	// TakeOver assigns the node's name to this machine. If force is true, this machine gets the name even if another
	// machine uses it.
	TakeOver func(ctx context.Context, force bool) (api.TakenOver, error)
	// Devices returns the devices that containers can request. If the parameter all is true, it also returns devices
	// that belong to no resource.
	Devices       func(all bool) ([]api.Device, error)
	Clock         Clock
	Shutdown      Shutdown
	Configuration Configurer
	Updates       Updater
	Bundles       BundleNode
	BundleTrials  BundleTrials
	IdleTimeout   time.Duration // timeout of a write to a client
	Log           *slog.Logger
}

// Node serves the paths about the node.
type Node struct{ Config }

// New returns a Node.
func New(c Config) *Node { return &Node{c} }

// Paths returns the handlers by pattern.
func (n *Node) Paths() map[string]http.HandlerFunc {
	paths := map[string]http.HandlerFunc{
		"GET " + api.PathEvents:   n.listEvents,
		"GET " + api.PathClock:    response.JSON(n.getClock),
		"DELETE " + api.PathClock: response.JSON(n.resetClock),
		"GET " + api.PathDevices:  response.JSON(n.listDevices),
		"GET " + api.PathBoard:    response.JSON(n.board),
		"GET " + api.PathIO:       response.JSON(n.diskIO),
		"POST " + api.PathAccept:  response.JSON(n.acceptHeldPods),
	}
	if n.TakeOver != nil {
		paths["POST "+api.PathTakeOver] = response.JSON(n.takeOver)
	}
	if n.Shutdown != nil {
		paths["POST "+api.PathShutdown] = n.serveShutdown
		paths["DELETE "+api.PathShutdown] = response.JSON(n.cancelShutdown)
	}
	if n.Configuration != nil {
		n.addConfigurationPaths(paths)
	}
	if n.Updates != nil {
		paths["POST "+api.PathUpdate] = n.update
		paths["GET "+api.PathUpdate] = response.JSON(n.updateStatus)
	}
	if n.BundleTrials != nil {
		n.addBundlePaths(paths)
	}
	if n.Bundles != nil {
		paths["GET "+api.PathBundleNode] = response.JSON(n.describeNode)
		paths["POST "+api.PathRecipient] = response.JSON(n.makeRecipient)
	}
	return paths
}

func (n *Node) board(*http.Request) (any, error) { return n.Usage.Board(), nil }

func (n *Node) diskIO(r *http.Request) (any, error) { return n.Usage.IO(r.Context()) }
