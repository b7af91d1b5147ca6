package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// accept ends the held pods: the user at the device confirms that the control plane, which does not
// have them, is right.
func (s *Server) accept(r *http.Request) (api.Accepted, error) {
	if s.Accept == nil {
		return api.Accepted{}, nil
	}
	return s.Accept(r.Context())
}

// takeOver assigns the node's name to this machine: the user at the device confirms that it
// replaces the other machine, or that there is no other.
func (s *Server) takeOver(r *http.Request) (api.TakenOver, error) {
	done, err := s.TakeOver(r.Context(), r.URL.Query().Has("force"))
	if err != nil {
		return done, refusal{http.StatusConflict, err.Error()}
	}
	return done, nil
}
