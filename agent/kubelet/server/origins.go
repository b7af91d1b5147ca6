package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/api"
)

// origins returns the origin of each pod whose origin is known: its file, URL, command or API server.
func (s *Server) origins(*http.Request) (any, error) {
	out := map[types.UID]string{}
	if s.Origin == nil {
		return out, nil
	}
	for _, p := range s.Pods.List() {
		if origin := s.Origin(p.UID); origin != "" {
			out[p.UID] = origin
		}
	}
	return out, nil
}

// getDetails returns information about a pod that the Pod object does not contain.
func (s *Server) getDetails(r *http.Request) (any, error) {
	if s.Details == nil {
		return api.Details{}, nil
	}
	return s.Details(types.UID(r.PathValue("uid"))), nil
}
