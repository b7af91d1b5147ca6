package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// shutdown ends all pods in order. The response ends when all pods have ended.
func (s *Server) shutdown(w http.ResponseWriter, r *http.Request) {
	out := s.progress(w, r)
	out.Flush()
	defer out.keepAlive()()
	configured, err := s.Shutdown.Begin(r.Context())
	if err == nil && !configured {
		out.tellOnce(api.Progress{Status: "unconfigured"})
	}
	out.end(nil, err)
}

// cancelShutdown starts the pods again that shutdown ended.
func (s *Server) cancelShutdown(r *http.Request) (struct{}, error) {
	return struct{}{}, s.Shutdown.Cancel(r.Context())
}
