package server

import (
	"net/http"

	"github.com/islet-edge/islet/agent/api"
)

// accept ends the pods that are held: the person at the device says that the control
// plane, which does not have them, is right.
func (s *Server) accept(r *http.Request) (api.Accepted, error) {
	if s.Accept == nil {
		return api.Accepted{}, nil
	}
	return s.Accept(r.Context())
}
