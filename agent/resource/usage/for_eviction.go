package usage

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/metrics/disk"
)

// Processes returns the memory use and the number of processes of all pods that have a running container. It does not
// measure files.
func (u *Usage) Processes(ctx context.Context) ([]stats.PodStats, error) {
	j, err := u.joinFigures(ctx, false)
	if err != nil {
		return nil, err
	}
	n := nodeAnswer{Usage: u, arena: new(arena), short: true, j: j}
	var out []stats.PodStats
	for _, p := range j.pods {
		s := n.podStats(ctx, p)
		if p.group != nil {
			s.ProcessStats = &stats.ProcessStats{ProcessCount: &p.group.PIDs}
		}
		out = append(out, s)
	}
	return out, nil
}

// unlimited is larger than any disk, but small enough that sums do not overflow.
const unlimited = 1 << 56

// Storage returns one pod's use of the node's disks: volumes, logs, and the writable layers as the runtime reports
// them. It measures no other pod. It reuses known sizes of volumes and logs if they are not older than the
// parameter age. If a directory or container has too many files to be counted, Storage returns a size that exceeds
// every limit. So a pod cannot evade a limit by creating many files.
func (u *Usage) Storage(ctx context.Context, spec *v1.Pod, age time.Duration) (*stats.PodStats, error) {
	mine := map[string]string{keys.PodUID: string(spec.UID)}
	list, err := u.c.Runtime.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{LabelSelector: mine}})
	if err != nil {
		return nil, fmt.Errorf("list the containers of pod %s: %w", spec.UID, err)
	}
	j := &joinedFigures{byUID: map[string]*pod{}, byID: map[string]*container{}}
	p := &pod{name: spec.Name, namespace: spec.Namespace, uid: string(spec.UID), spec: spec}
	j.byUID[p.uid], j.pods = p, append(j.pods, p)
	names := map[string]bool{}
	for _, running := range []bool{true, false} { // containers with the same name share a log directory
		for _, c := range list.Containers {
			name := c.Labels[keys.ContainerName]
			if c.Labels[keys.PodUID] == p.uid && !names[name] && (c.State == api.ContainerState_CONTAINER_RUNNING) == running {
				names[name] = true
				j.add(c)
			}
		}
	}
	if err := u.addWritten(ctx, j, mine, list.Containers); err != nil {
		return nil, fmt.Errorf("measure the containers of pod %s: %w", spec.UID, err)
	}
	trees := cmp.Or(u.c.Trees, &disk.Trees{})
	n := nodeAnswer{Usage: u, arena: new(arena), j: j, measure: func(ctx context.Context, dir string) disk.Usage {
		found := trees.UsageOfAll(ctx, dir, age)
		if found.Incomplete {
			found.Bytes = unlimited
		}
		return found
	}}
	out := n.podStats(ctx, p)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("measure the files of pod %s: %w", spec.UID, err)
	}
	return &out, nil
}

// addWritten adds the sizes of the writable layers of one pod's containers. The labels select these containers. A
// runtime that implements Layered counts all files of the layers.
func (u *Usage) addWritten(ctx context.Context, j *joinedFigures, labels map[string]string, list []*api.Container) error {
	layered, ok := u.c.Runtime.(Layered)
	if !ok {
		told, err := u.c.Runtime.ListContainerStats(ctx,
			&api.ListContainerStatsRequest{Filter: &api.ContainerStatsFilter{LabelSelector: labels}})
		if err != nil {
			return err
		}
		for _, s := range told.Stats {
			if c := j.byID[s.GetAttributes().GetId()]; c != nil {
				c.reported, c.layer = s, s.WritableLayer
			}
		}
		return nil
	}
	for _, l := range list {
		c := j.byID[l.Id]
		if c == nil || l.State != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		layer, whole, err := layered.WholeLayer(ctx, c.id)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			continue // removed meanwhile
		}
		if !whole {
			layer.UsedBytes = &api.UInt64Value{Value: unlimited}
		}
		c.layer = layer
	}
	return nil
}
