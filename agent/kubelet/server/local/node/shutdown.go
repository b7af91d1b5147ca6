package node

import (
	"context"
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// Shutdown ends all pods in the order of a shutdown of the machine.
type Shutdown interface {
	// Begin ends the pods and returns when all have ended. It returns false if no grace period is configured.
	Begin(ctx context.Context) (configured bool, err error)
	// Cancel starts the pods again.
	Cancel(ctx context.Context) error
}

// serveShutdown ends all pods in order. The response ends when all pods have ended.
func (n *Node) serveShutdown(w http.ResponseWriter, r *http.Request) {
	out := response.NewProgress(w, n.IdleTimeout)
	out.Flush()
	defer out.KeepAlive()()
	configured, err := n.Shutdown.Begin(r.Context())
	if err == nil && !configured {
		out.SendLine(api.Progress{Status: "unconfigured"})
	}
	out.SendImages(nil, err)
}

// cancelShutdown cancels a shutdown, and starts again all pods that the shutdown has ended.
func (n *Node) cancelShutdown(r *http.Request) (any, error) {
	return struct{}{}, n.Shutdown.Cancel(r.Context())
}
