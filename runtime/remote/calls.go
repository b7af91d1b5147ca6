package remote

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callTimer adds timeouts to the requests of a Client and reports their durations.
type callTimer struct {
	timeout       time.Duration
	observeCall   func(method string, took time.Duration, err error)
	objectChanged chan struct{} // capacity 1; receives a value after a call that changes an object
}

// intercept implements cri.Options.Intercept.
func (c *callTimer) intercept(ctx context.Context, method string, req any, next func(context.Context) error) error {
	method = path.Base(method)
	callerCtx := ctx
	if timeout, bounded := c.timeoutOf(method, req); bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, timeout)
		defer stop()
	}
	began := time.Now()
	err := next(ctx)
	c.observeCall(method, time.Since(began), err)
	if changesObjects(method) {
		select {
		case c.objectChanged <- struct{}{}:
		default:
		}
	}
	// A timeout of the runtime may have expired before the timeout of ctx.
	timedOut := ctx.Err() != nil || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) && method != "ExecSync"
	if err != nil && timedOut && callerCtx.Err() == nil {
		return fmt.Errorf("the container runtime has not answered %s in %s: %w", method, time.Since(began).Round(time.Second), err)
	}
	return err
}

// timeoutOf returns the timeout of a call, as in a kubelet. It is runtimeRequestTimeout plus the
// grace period or timeout in the request, and twice runtimeRequestTimeout for RunPodSandbox. It
// returns false for calls without a timeout: pulls, checkpoints, and commands without a timeout.
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
func (c *callTimer) timeoutOf(method string, req any) (time.Duration, bool) {
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

// changesObjects reports whether a method changes sandboxes or containers.
func changesObjects(method string) bool {
	switch method {
	case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer":
		return true
	}
	return false
}
