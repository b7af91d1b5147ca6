package server

import (
	"net/http"

	"github.com/islet-edge/islet/internal/api"
)

// processes returns the processes of a pod's containers.
func (s *Server) processes(r *http.Request) (p api.Processes, err error) {
	pod, err := s.findPod(r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return p, err
	}
	return s.Usage.PodProcesses(r.Context(), string(pod.UID))
}
