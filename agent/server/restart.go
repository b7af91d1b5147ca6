package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/keys"
)

// restartPod ends the containers of the pod that the path names, with the time that
// they have to end, so that they start again: the plan does that for containers
// whose restartPolicy is Always. What waits in a crash back-off has its ended
// attempts removed, and so starts at once. The answer is a stream, because it takes
// as long as the containers take.
func (s *Server) restartPod(w http.ResponseWriter, r *http.Request) {
	pod, err := s.find(r.PathValue("namespace"), r.PathValue("name"), "")
	var grace int64
	if err == nil {
		grace, err = restartGrace(r, pod)
	}
	if err == nil {
		err = restartable(pod)
	}
	if err != nil {
		fail(w, err)
		return
	}
	out := s.progress(w, r)
	out.Flush()
	done := out.alive()
	stopped, err := s.stopContainers(r.Context(), pod, grace)
	done()
	out.end(stopped, err)
}

// restartGrace is how many seconds the processes have: those of the request, or the
// pod's own.
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
		return 0, refuse(http.StatusBadRequest, "gracePeriodSeconds %q is not a number of seconds", q)
	}
	return n, nil
}

// restartable says why a pod cannot be restarted: a container that ends would stay
// ended.
func restartable(pod *v1.Pod) error {
	name := pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return refuse(http.StatusConflict, "pod %s is being deleted", name)
	}
	for _, c := range pod.Spec.Containers {
		policy := pod.Spec.RestartPolicy
		if c.RestartPolicy != nil {
			policy = v1.RestartPolicy(*c.RestartPolicy)
		}
		if policy != v1.RestartPolicyAlways && policy != "" {
			return refuse(http.StatusConflict, "pod %s: container %s has the restartPolicy %s, so it would stay ended: delete the pod and apply it again", name, c.Name, policy)
		}
	}
	return nil
}

// stopContainers ends what runs of a pod and returns the names of its containers.
func (s *Server) stopContainers(ctx context.Context, pod *v1.Pod, grace int64) ([]string, error) {
	var mu sync.Mutex
	var names []string
	var first error
	var all sync.WaitGroup
	for _, st := range pod.Status.ContainerStatuses {
		all.Go(func() {
			acted, err := s.stopContainer(ctx, pod, &st, grace)
			mu.Lock()
			defer mu.Unlock()
			if acted {
				names = append(names, st.Name)
			}
			if err != nil && first == nil {
				first = fmt.Errorf("container %s of pod %s/%s: %w", st.Name, pod.Namespace, pod.Name, err)
			}
		})
	}
	all.Wait()
	if first == nil && len(names) == 0 {
		first = fmt.Errorf("pod %s/%s has no container that has run yet: see islet describe %s", pod.Namespace, pod.Name, pod.Name)
	}
	return names, first
}

func (s *Server) stopContainer(ctx context.Context, pod *v1.Pod, st *v1.ContainerStatus, grace int64) (acted bool, err error) {
	if st.State.Running != nil && st.ContainerID != "" {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second+requestTimeout)
		defer cancel()
		_, err := s.Runtime.StopContainer(ctx, &crapi.StopContainerRequest{ContainerId: bareID(st.ContainerID), Timeout: grace})
		return err == nil, err
	}
	ended, err := s.Runtime.ListContainers(ctx, &crapi.ListContainersRequest{Filter: &crapi.ContainerFilter{
		State:         &crapi.ContainerStateValue{State: crapi.ContainerState_CONTAINER_EXITED},
		LabelSelector: map[string]string{keys.PodUID: string(pod.UID), keys.ContainerName: st.Name}}})
	if err != nil {
		return false, err
	}
	for _, c := range ended.Containers {
		if _, err := s.Runtime.RemoveContainer(ctx, &crapi.RemoveContainerRequest{ContainerId: c.Id}); err != nil && !errdefs.IsNotFound(err) {
			return acted, err
		}
		acted = true
	}
	return acted, nil
}
