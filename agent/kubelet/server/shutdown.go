package server

import (
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// serveShutdown ends all pods in order. The response ends when all pods have ended.
func (s *Server) serveShutdown(w http.ResponseWriter, r *http.Request) {
	out := response.NewProgress(w, s.StreamIdleTimeout)
	out.Flush()
	defer out.KeepAlive()()
	configured, err := s.Shutdown.Begin(r.Context())
	if err == nil && !configured {
		out.SendLine(api.Progress{Status: "unconfigured"})
	}
	out.SendImages(nil, err)
}

// cancelShutdown cancels a shutdown, and starts again all pods that the shutdown has ended.
func (s *Server) cancelShutdown(r *http.Request) (any, error) {
	return struct{}{}, s.Shutdown.Cancel(r.Context())
}
