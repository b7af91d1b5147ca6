package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// maxProcesses is the maximum number of processes that are listed for a pod.
const maxProcesses = 2000

// errNoGroups means that processes cannot be assigned to containers.
var errNoGroups = errors.New("the processes are unknown, because the containers have no visible cgroups")

// PodProcesses returns the processes of the pod's running containers.
func (u *Usage) PodProcesses(ctx context.Context, uid string) (api.Processes, error) {
	out := api.Processes{At: time.Now(), List: []api.Process{}, Whole: true}
	if u.c.Sampler == nil {
		return out, errNoGroups
	}
	j, err := u.joinFigures(ctx, false)
	if err != nil {
		return out, err
	}
	p := j.byUID[uid]
	if p == nil {
		return out, nil // no container is running
	}
	for _, c := range p.containers {
		if c.group == nil {
			return out, errNoGroups
		}
		list, err := u.c.Sampler.Processes(c.group.Path, maxProcesses+1)
		if err != nil {
			return out, fmt.Errorf("container %s: %w", c.name, err)
		}
		for _, p := range list {
			if len(out.List) == maxProcesses {
				out.Whole = false
				return out, nil
			}
			out.List = append(out.List, api.Process{Container: c.name, PID: p.InnerPID, HostPID: p.PID, Parent: p.Parent, User: p.User,
				State: p.State, Threads: p.Threads, CPU: p.CPU, Memory: p.Memory, Age: p.Age, Command: p.Command})
		}
	}
	return out, nil
}
