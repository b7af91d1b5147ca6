package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// accept ends the pods that are held: the person at the device says that the control
// plane, which does not have them, is right.
func (s *Server) accept(r *http.Request) (api.Accepted, error) {
	if s.Accept == nil {
		return api.Accepted{}, nil
	}
	return s.Accept(r.Context())
}

// takeOver gives the name of the node to this machine: the person at the device says that it
// replaces the other one, or that there is no other one.
func (s *Server) takeOver(r *http.Request) (api.TakenOver, error) {
	done, err := s.TakeOver(r.Context(), r.URL.Query().Has("force"))
	if err != nil {
		return done, refusal{http.StatusConflict, err.Error()}
	}
	return done, nil
}
