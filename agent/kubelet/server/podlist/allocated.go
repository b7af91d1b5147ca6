package podlist

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// ListAllocated serves /allocatedPods. It returns the pods that have not ended. Each pod has the resources that the
// node has allocated to it, and no status.
func (l *Lister) ListAllocated(*http.Request) (any, error) {
	var pods []*v1.Pod
	for _, p := range Sort(l.Pods.List()) {
		if !HasEnded(p) {
			pods = append(pods, l.withAllocated(p))
		}
	}
	return podList(pods), nil
}

// GetAllocated serves /allocatedPods/NAMESPACE/POD[/UID], with the same data for one pod.
func (l *Lister) GetAllocated(r *http.Request) (any, error) {
	p, err := FindOrMirrored(l.Pods.List(), r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if err != nil {
		return nil, err
	}
	if HasEnded(p) {
		return nil, response.Refuse(http.StatusNotFound, "pod %q has ended", p.Name)
	}
	out := l.withAllocated(p)
	out.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	return out, nil
}

func (l *Lister) withAllocated(p *v1.Pod) *v1.Pod {
	out := *l.Allocated(p)
	out.Status = v1.PodStatus{}
	return &out
}
