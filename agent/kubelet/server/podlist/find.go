package podlist

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/podspec"
)

// Find returns the pod with the given name, or otherwise the pod whose mirror pod has this name. If uid is not empty, the pod must have
// this UID. While a pod is being replaced, two pods have the same name. In this case the result is the pod that has containers.
func Find(pods []*v1.Pod, namespace, name string, uid types.UID) (*v1.Pod, error) {
	for _, nameOf := range []func(*v1.Pod) string{func(p *v1.Pod) string { return p.Name }, podspec.MirrorName} {
		var found *v1.Pod
		for _, p := range pods {
			if p.Namespace == namespace && nameOf(p) == name && (uid == "" || p.UID == uid) &&
				(found == nil || len(found.Status.ContainerStatuses) == 0) {
				found = p
			}
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, response.Refuse(http.StatusNotFound, "pod %q does not exist", name)
}

// States returns the states of containers. cri.Runtime implements it.
type States interface {
	ContainerStatus(context.Context, *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error)
}

// FindRunning returns the ID of the container in the request's path. It returns an error if the container is not running
// according to the runtime. The pod's status may differ: a container whose postStart hook runs is waiting there. A kubelet
// asks its runtime too, so that users can look into a container whose hook does not return.
func FindRunning(pods []*v1.Pod, states States, r *http.Request) (string, error) {
	pod, err := Find(pods, r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid")))
	if err != nil {
		return "", err
	}
	name := r.PathValue("container")
	st, err := FindStatus(pod, name)
	if err != nil {
		return "", response.Refuse(http.StatusNotFound, "container not found (%q)", name)
	}
	if id := BareID(st.ContainerID); id != "" {
		now, err := states.ContainerStatus(r.Context(), &cri.ContainerStatusRequest{ContainerId: id})
		if err == nil && now.GetStatus().GetState() == cri.ContainerState_CONTAINER_RUNNING {
			return id, nil
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return "", err
		}
	}
	return "", response.Refuse(http.StatusBadRequest, "container not found (%q): it is not running: %s", name, stateText(st.State))
}

func stateText(st v1.ContainerState) string {
	switch {
	case st.Running != nil:
		return "it has just ended"
	case st.Terminated != nil:
		return fmt.Sprintf("terminated with exit code %d", st.Terminated.ExitCode)
	case st.Waiting != nil && st.Waiting.Reason != "":
		return "waiting, " + st.Waiting.Reason
	}
	return "waiting"
}

// FindStatus returns the status of an init, main or ephemeral container. The status is empty if the pod's
// status does not contain the container yet.
func FindStatus(pod *v1.Pod, name string) (*v1.ContainerStatus, error) {
	for st := range podspec.Statuses(&pod.Status) {
		if st.Name == name {
			return st, nil
		}
	}
	if _, c := podspec.Find(&pod.Spec, name); c != nil {
		return &v1.ContainerStatus{Name: name}, nil
	}
	return nil, response.Refuse(http.StatusNotFound, "container %q not found in pod %q", name, pod.Name)
}

// BareID removes the runtime's name from "containerd://ID".
func BareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

// HasEnded reports whether a pod has ended.
func HasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// IsEnding reports whether a pod has ended or is being deleted.
func IsEnding(p *v1.Pod) bool {
	return p.DeletionTimestamp != nil || HasEnded(p)
}
