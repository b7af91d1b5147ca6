package realtime

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/realtime"
)

// A Hook adds the real-time settings of a container to its configuration.
type Hook struct {
	Node func() realtime.Node
	Pods func() []*v1.Pod // all pods with their statuses
}

// Name returns the hook's name.
func (Hook) Name() string { return "real time" }

// Container adds the settings of a container to its annotations. It returns a realtime.Refusal if the node no longer allows
// them.
func (h Hook) Container(_ context.Context, pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	if !realtime.Requested(pod) {
		return nil
	}
	running := slices.DeleteFunc(h.Pods(), func(p *v1.Pod) bool {
		return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	})
	all, err := realtime.Check(pod, running, h.Node())
	if err != nil {
		return err
	}
	all[ctr.Name].Annotate(out.Annotations)
	return nil
}
