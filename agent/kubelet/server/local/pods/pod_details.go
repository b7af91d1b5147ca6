package pods

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/internal/api"
)

// origins returns the origin of each pod whose origin is known: its file, URL, command or API server.
func (ps *Pods) origins(*http.Request) (any, error) {
	out := map[types.UID]string{}
	if ps.Origin == nil {
		return out, nil
	}
	for _, p := range ps.Lister.List() {
		if origin := ps.Origin(p.UID); origin != "" {
			out[p.UID] = origin
		}
	}
	return out, nil
}

// getDetails returns information about a pod that the Pod object does not contain.
func (ps *Pods) getDetails(r *http.Request) (any, error) {
	if ps.Details == nil {
		return api.Details{}, nil
	}
	return ps.Details(types.UID(r.PathValue("uid"))), nil
}

// processes returns the processes of a pod's containers.
func (ps *Pods) processes(r *http.Request) (any, error) {
	pod, err := podlist.Find(ps.Lister.List(), r.PathValue("namespace"), r.PathValue("pod"), "")
	if err != nil {
		return nil, err
	}
	return ps.Usage.PodProcesses(r.Context(), string(pod.UID))
}
