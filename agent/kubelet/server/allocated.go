package server

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// allocatedPods serves /allocatedPods. It returns the pods that have not ended. Each pod has the resources that the
// node has allocated to it, and no status.
func (s *Server) allocatedPods(*http.Request) (any, error) {
	var pods []*v1.Pod
	for _, p := range s.sortedPods() {
		if !hasEnded(p) {
			pods = append(pods, s.withAllocated(p))
		}
	}
	return podList(pods), nil
}

// allocatedPod serves /allocatedPods/NAMESPACE/POD[/UID], with the same data for one pod.
func (s *Server) allocatedPod(r *http.Request) (any, error) {
	p, err := s.findPod(r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if err != nil {
		return nil, err
	}
	if hasEnded(p) {
		return nil, response.Refuse(http.StatusNotFound, "pod %q has ended", p.Name)
	}
	out := s.withAllocated(p)
	out.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	return out, nil
}

func (s *Server) withAllocated(p *v1.Pod) *v1.Pod {
	out := *s.Kubelet.Allocated(p)
	out.Status = v1.PodStatus{}
	return &out
}

func hasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}
