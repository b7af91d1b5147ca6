package pods

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// restartPod restarts the containers of a pod, which must have the restartPolicy Always. The containers are stopped with
// their preStop hooks and the grace period, and the plan starts them again. A container in a crash back-off is started at
// once. The response is sent before the containers have restarted.
func (ps *Pods) restartPod(w http.ResponseWriter, r *http.Request) {
	pod, err := podlist.Find(ps.Lister.List(), r.PathValue("namespace"), r.PathValue("name"), "")
	var grace int64
	if err == nil {
		grace, err = restartGrace(r, pod)
	}
	if err == nil {
		err = checkRestartable(pod)
	}
	if err != nil {
		response.WriteError(w, err)
		return
	}
	out := response.NewProgress(w, ps.IdleTimeout)
	out.Flush()
	out.SendImages(ps.restartContainers(pod, grace))
}

// restartGrace returns the grace period of the request in seconds. If the request has none, it returns the grace period
// of the pod.
func restartGrace(r *http.Request, pod *v1.Pod) (int64, error) {
	q := r.URL.Query().Get("gracePeriodSeconds")
	if q == "" {
		if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
			return *g, nil
		}
		return v1.DefaultTerminationGracePeriodSeconds, nil
	}
	n, err := strconv.ParseInt(q, 10, 32)
	if err != nil || n < 0 {
		return 0, response.Refuse(http.StatusBadRequest, "gracePeriodSeconds %q is not a number of seconds", q)
	}
	return n, nil
}

// checkRestartable returns an error if the pod is being deleted, or if one of its containers would not start again.
func checkRestartable(pod *v1.Pod) error {
	name := pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return response.Refuse(http.StatusConflict, "pod %s is being deleted", name)
	}
	for _, c := range pod.Spec.Containers {
		policy := pod.Spec.RestartPolicy
		if c.RestartPolicy != nil {
			policy = v1.RestartPolicy(*c.RestartPolicy)
		}
		if policy != v1.RestartPolicyAlways && policy != "" {
			return response.Refuse(http.StatusConflict,
				"pod %s: container %s has the restartPolicy %s, so it would not start again: delete the pod and apply it again",
				name, c.Name, policy)
		}
	}
	return nil
}

// restartContainers requests the restart of each container that has run, and returns their names.
func (ps *Pods) restartContainers(pod *v1.Pod, grace int64) ([]string, error) {
	var names []string
	for _, st := range pod.Status.ContainerStatuses {
		id := st.ContainerID
		if last := st.LastTerminationState.Terminated; id == "" && last != nil {
			id = last.ContainerID
		}
		if id != "" {
			ps.Restart(pod.UID, st.Name, podlist.BareID(id), time.Duration(grace)*time.Second)
			names = append(names, st.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("pod %s/%s has no container that has run yet: see islet describe %s", pod.Namespace, pod.Name, pod.Name)
	}
	return names, nil
}
