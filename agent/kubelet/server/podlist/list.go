package podlist

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// Pods returns the pods of this node.
type Pods interface {
	List() []*v1.Pod
}

// Runtime lists containers. cri.Runtime implements it.
type Runtime interface {
	ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error)
}

// Config configures a Lister.
type Config struct {
	Pods    Pods
	Runtime Runtime
	// Allocated returns a pod with its allocated resources. ListAllocated and GetAllocated require it.
	Allocated func(*v1.Pod) *v1.Pod
}

// A Lister serves the lists of pods of a kubelet.
type Lister struct{ Config }

// New returns a Lister.
func New(c Config) *Lister { return &Lister{c} }

// ListPods serves /pods. The response is a PodList, like the response of a kubelet.
func (l *Lister) ListPods(*http.Request) (any, error) {
	return podList(Sort(l.Pods.List())), nil
}

func podList(pods []*v1.Pod) *v1.PodList {
	l := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]v1.Pod, 0, len(pods))}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

// Sort returns a list of the pods that is sorted by namespace and name.
func Sort(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// ListRunning serves /runningpods/. It returns the pods with running containers, even if no source wants them.
func (l *Lister) ListRunning(r *http.Request) (any, error) {
	list, err := l.Runtime.ListContainers(r.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
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
