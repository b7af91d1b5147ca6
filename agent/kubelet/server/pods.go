package server

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
)

// listPods serves /pods. The response is a PodList, like the response of a kubelet.
func (s *Server) listPods(*http.Request) (any, error) {
	return podList(s.sortedPods()), nil
}

func podList(pods []*v1.Pod) *v1.PodList {
	l := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]v1.Pod, 0, len(pods))}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

func (s *Server) sortedPods() []*v1.Pod {
	return slices.SortedFunc(slices.Values(s.Pods.List()), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// runningPods serves /runningpods/. It returns the pods with running containers, even if no source wants them.
func (s *Server) runningPods(r *http.Request) (any, error) {
	list, err := s.Runtime.ListContainers(r.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var pods []*v1.Pod
	byUID := map[types.UID]*v1.Pod{}
	for _, c := range list.Containers {
		uid := types.UID(c.Labels[keys.PodUID])
		pod := byUID[uid]
		if pod == nil {
			pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid,
				Namespace: c.Labels[keys.PodNamespace], Name: c.Labels[keys.PodName]}}
			byUID[uid] = pod
			pods = append(pods, pod)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: c.Labels[keys.ContainerName], Image: c.GetImage().GetImage()})
	}
	return podList(pods), nil
}

// findPod returns the pod with the given name. If uid is not empty, the pod must have this UID. While a pod is being
// replaced, two pods have the same name. In this case the result is the pod that has containers.
func (s *Server) findPod(namespace, name string, uid types.UID) (*v1.Pod, error) {
	var found *v1.Pod
	for _, p := range s.Pods.List() {
		if p.Namespace == namespace && p.Name == name && (uid == "" || p.UID == uid) &&
			(found == nil || len(found.Status.ContainerStatuses) == 0) {
			found = p
		}
	}
	if found == nil {
		return nil, response.Refuse(http.StatusNotFound, "pod %q does not exist", name)
	}
	return found, nil
}

// getDetails returns information about a pod that the Pod object does not contain.
func (s *Server) getDetails(r *http.Request) (any, error) {
	if s.Details == nil {
		return api.Details{}, nil
	}
	return s.Details(types.UID(r.PathValue("uid"))), nil
}

// watchPods sends all pods, and then each change of a pod until the client disconnects.
func (s *Server) watchPods(w http.ResponseWriter, r *http.Request) {
	out := response.NewLines(w, s.StreamIdleTimeout)
	seen := map[types.UID]*v1.Pod{}
	for first := true; ; first = false {
		changed := s.Pods.Changed()
		now := make(map[types.UID]*v1.Pod, len(seen))
		for _, p := range s.sortedPods() {
			now[p.UID] = p
			switch old := seen[p.UID]; {
			case old == nil:
				out.Send(api.PodEvent{Type: "ADDED", Pod: p})
			case old != p && !reflect.DeepEqual(old, p):
				out.Send(api.PodEvent{Type: "MODIFIED", Pod: p})
			}
		}
		for uid, p := range seen {
			if now[uid] == nil {
				out.Send(api.PodEvent{Type: "DELETED", Pod: p})
			}
		}
		if first {
			out.Send(api.PodEvent{Type: "SYNCED"})
		}
		seen = now
		if out.Err() != nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(response.AliveInterval):
			out.Send(api.PodEvent{Type: api.EventAlive})
		case <-r.Context().Done():
			out.Abort()
		}
	}
}
