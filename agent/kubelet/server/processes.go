package server

import (
	"net/http"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
)

// processes returns the processes of a pod's containers.
func (s *Server) processes(r *http.Request) (any, error) {
	pod, err := podlist.Find(s.Pods.List(), r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return nil, err
	}
	return s.Usage.PodProcesses(r.Context(), string(pod.UID))
}
