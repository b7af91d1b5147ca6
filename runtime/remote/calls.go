package remote

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A calls adds timeouts to the calls of a Client and counts them.
type calls struct {
	timeout time.Duration
	counted func(method string, took time.Duration, err error)
	acted   chan struct{} // capacity 1; full if a call of the agent has changed something
}

// around makes one call.
func (c *calls) around(ctx context.Context, method string, req any, next func(context.Context) error) error {
	method = path.Base(method)
	asked := ctx
	if most, bounded := c.timeoutOf(method, req); bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, most)
		defer stop()
	}
	began := time.Now()
	err := next(ctx)
	c.counted(method, time.Since(began), err)
	if acts(method) {
		select {
		case c.acted <- struct{}{}:
		default:
		}
	}
	// The runtime's own timeout may have expired first.
	late := ctx.Err() != nil || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) && method != "ExecSync"
	if err != nil && late && asked.Err() == nil {
		return fmt.Errorf("the container runtime has not answered %s in %s: %w", method, time.Since(began).Round(time.Second), err)
	}
	return err
}

// timeoutOf returns the timeout of a call, as in a kubelet. It is runtimeRequestTimeout, or twice
// that for a sandbox with its network, plus the grace period or timeout in the call itself. Pulls,
// checkpoints and commands without a timeout have none.
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
func (c *calls) timeoutOf(method string, req any) (time.Duration, bool) {
	switch q := req.(type) {
	case *api.PullImageRequest, *api.CheckpointContainerRequest:
		return 0, false
	case *api.RunPodSandboxRequest:
		return 2 * c.timeout, true
	case *api.StopContainerRequest:
		return c.timeout + time.Duration(max(q.Timeout, 0))*time.Second, true
	case *api.ExecSyncRequest:
		return c.timeout + time.Duration(max(q.Timeout, 0))*time.Second, q.Timeout > 0
	}
	return c.timeout, true
}

// acts reports whether a call changes sandboxes or containers.
func acts(method string) bool {
	switch method {
	case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer":
		return true
	}
	return false
}
