package server

import (
	"net/http"
)

// processes returns the processes of a pod's containers.
func (s *Server) processes(r *http.Request) (any, error) {
	pod, err := s.findPod(r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return nil, err
	}
	return s.Usage.PodProcesses(r.Context(), string(pod.UID))
}
