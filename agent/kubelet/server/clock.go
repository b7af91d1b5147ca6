package server

import (
	"context"
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// Clock is what the node knows of the time.
type Clock interface {
	Clock() api.Clock
	// ResetClock forgets what was taken for proven.
	ResetClock(context.Context) error
}

func (s *Server) clock(*http.Request) (api.Clock, error) {
	if s.Clock == nil {
		return api.Clock{}, refuse(http.StatusNotFound, "this node keeps no time of its own")
	}
	return s.Clock.Clock(), nil
}

func (s *Server) resetClock(r *http.Request) (api.Clock, error) {
	if s.Clock != nil {
		if err := s.Clock.ResetClock(r.Context()); err != nil {
			return api.Clock{}, err
		}
		s.Log.Warn("what was proven of the time was forgotten: somebody asked for it")
	}
	return s.clock(r)
}
