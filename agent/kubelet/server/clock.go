package server

import (
	"context"
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// Clock is the node's knowledge of the time.
type Clock interface {
	Clock() api.Clock
	// ResetClock discards the recorded time limits.
	ResetClock(context.Context) error
}

func (s *Server) clock(*http.Request) (api.Clock, error) {
	if s.Clock == nil {
		return api.Clock{}, refuse(http.StatusNotFound, "this node does not record the time")
	}
	return s.Clock.Clock(), nil
}

func (s *Server) resetClock(r *http.Request) (api.Clock, error) {
	if s.Clock != nil {
		if err := s.Clock.ResetClock(r.Context()); err != nil {
			return api.Clock{}, err
		}
		s.Log.Warn("the recorded time limits were reset by request")
	}
	return s.clock(r)
}
