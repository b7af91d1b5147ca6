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

// Processes is the memory and the processes of all pods of which something runs. No file of
// theirs is looked at.
func (u *Usage) Processes(ctx context.Context) ([]stats.PodStats, error) {
	j, err := u.join(ctx, false)
	if err != nil {
		return nil, err
	}
	n := nodeAnswer{Usage: u, arena: new(arena), short: true, j: j}
	var out []stats.PodStats
	for _, p := range j.pods {
		s := n.pod(ctx, p)
		if p.group != nil {
			s.ProcessStats = &stats.ProcessStats{ProcessCount: &p.group.PIDs}
		}
		out = append(out, s)
	}
	return out, nil
}

// untold is more than any disk has, and little enough to be added up.
const untold = 1 << 56

// Storage is what one pod has on the disks of the node: volumes and logs, if possible no
// older than age, and what its containers write as the runtime tells it. Of other pods nothing
// is looked at. Of a directory, or a container, in which more is than can be counted it says
// untold: nobody hides files from a limit.
func (u *Usage) Storage(ctx context.Context, spec *v1.Pod, age time.Duration) (*stats.PodStats, error) {
	mine := map[string]string{keys.PodUID: string(spec.UID)}
	list, err := u.c.Runtime.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{LabelSelector: mine}})
	if err != nil {
		return nil, fmt.Errorf("list the containers of pod %s: %w", spec.UID, err)
	}
	j := &joined{byUID: map[string]*pod{}, byID: map[string]*container{}}
	p := &pod{name: spec.Name, namespace: spec.Namespace, uid: string(spec.UID), spec: spec}
	j.byUID[p.uid], j.pods = p, append(j.pods, p)
	names := map[string]bool{}
	for _, running := range []bool{true, false} { // one of each name: their logs are in one place
		for _, c := range list.Containers {
			name := c.Labels[keys.ContainerName]
			if c.Labels[keys.PodUID] == p.uid && !names[name] && (c.State == api.ContainerState_CONTAINER_RUNNING) == running {
				names[name] = true
				j.add(c)
			}
		}
	}
	if err := u.written(ctx, j, mine, list.Containers); err != nil {
		return nil, fmt.Errorf("measure the containers of pod %s: %w", spec.UID, err)
	}
	trees := cmp.Or(u.c.Trees, &disk.Trees{})
	n := nodeAnswer{Usage: u, arena: new(arena), j: j, measure: func(ctx context.Context, dir string) disk.Usage {
		found := trees.Whole(ctx, dir, age)
		if found.Cut {
			found.Bytes = untold
		}
		return found
	}}
	out := n.pod(ctx, p)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("measure the files of pod %s: %w", spec.UID, err)
	}
	return &out, nil
}

// written adds what the containers of one pod have written, which have these labels. A Layered
// runtime counts all of it, and nothing else.
func (u *Usage) written(ctx context.Context, j *joined, labels map[string]string, list []*api.Container) error {
	layered, ok := u.c.Runtime.(Layered)
	if !ok {
		told, err := u.c.Runtime.ListContainerStats(ctx, &api.ListContainerStatsRequest{Filter: &api.ContainerStatsFilter{LabelSelector: labels}})
		if err != nil {
			return err
		}
		for _, s := range told.Stats {
			if c := j.byID[s.GetAttributes().GetId()]; c != nil {
				c.told, c.layer = s, s.WritableLayer
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
			continue // it has just been removed
		}
		if !whole {
			layer.UsedBytes = &api.UInt64Value{Value: untold}
		}
		c.layer = layer
	}
	return nil
}
