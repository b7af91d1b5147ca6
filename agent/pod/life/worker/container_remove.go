package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// removeContainer removes a container, its log and the rotated parts of the log. If the pod is removed too, the logs stay
// until the pod has been released, so that log shippers can read the last lines.
func (e *Executor) removeContainer(ctx context.Context, in plan.Input, a plan.Action) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	if _, err := e.cfg.Runtime.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: a.ID}); ignoreNotFound(err) != nil {
		return fmt.Errorf("remove container %s (%s): %w", a.Container, a.ID, err)
	}
	errs := []error{e.cfg.Lifecycle.Forget(a.ID)}
	for _, c := range in.Observed.Containers {
		if c.ID != a.ID || c.LogPath == "" || a.KeepsLog && e.cfg.Links.Retire(c.LogPath) == nil {
			continue
		}
		parts, err := filepath.Glob(c.LogPath + "*") // LogPath is from the runtime and has no wildcards
		errs = append(errs, err)
		for _, p := range parts {
			errs = append(errs, os.Remove(p))
		}
		errs = append(errs, e.cfg.Links.Unlink(c.LogPath))
	}
	return errors.Join(errs...)
}
