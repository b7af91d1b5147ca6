package node

import (
	"context"
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// Clock returns the state of the node's clock.
type Clock interface {
	Clock() api.Clock
	Resetter
}

// A Resetter records times. BundleTrials that implement it are reset with the Clock.
type Resetter interface {
	// ResetClock deletes the recorded time limits.
	ResetClock(context.Context) error
}

func (n *Node) getClock(*http.Request) (any, error) {
	if n.Clock == nil {
		return api.Clock{}, response.Refuse(http.StatusNotFound, "this node does not record the time")
	}
	return n.Clock.Clock(), nil
}

func (n *Node) resetClock(r *http.Request) (any, error) {
	if n.Clock != nil {
		if err := n.Clock.ResetClock(r.Context()); err != nil {
			return api.Clock{}, err
		}
		if b, ok := n.BundleTrials.(Resetter); ok {
			if err := b.ResetClock(r.Context()); err != nil {
				return api.Clock{}, err
			}
		}
		n.Log.Warn("the recorded time limits were deleted at the request of a user")
	}
	return n.getClock(r)
}
