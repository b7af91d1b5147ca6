package server

import (
	"context"
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// Clock returns the state of the node's clock.
type Clock interface {
	Clock() api.Clock
	// ResetClock deletes the recorded time limits.
	ResetClock(context.Context) error
}

func (s *Server) getClock(*http.Request) (any, error) {
	if s.Clock == nil {
		return api.Clock{}, response.Refuse(http.StatusNotFound, "this node does not record the time")
	}
	return s.Clock.Clock(), nil
}

func (s *Server) resetClock(r *http.Request) (any, error) {
	if s.Clock != nil {
		if err := s.Clock.ResetClock(r.Context()); err != nil {
			return api.Clock{}, err
		}
		s.Log.Warn("the recorded time limits were deleted at the request of a user")
	}
	return s.getClock(r)
}
