package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"
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
