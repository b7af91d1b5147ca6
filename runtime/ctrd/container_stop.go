package ctrd

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// killTimeout limits the wait for a container's end after SIGKILL. A process in uninterruptible
// sleep may take longer.
const killTimeout = 2 * time.Minute

// StopContainer sends the container's stop signal and, after the timeout, SIGKILL. It returns when
// the container's end is recorded. It returns no error if the container does not exist or is not
// running.
func (r *Runtime) StopContainer(ctx context.Context, req *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return &api.StopContainerResponse{}, ignoreNotFound(err)
	}
	if err := r.checkContainerOwner(ctx, c, "stop container"); err != nil {
		return nil, err
	}
	if err := r.stopContainer(ctx, c, time.Duration(req.GetTimeout())*time.Second); err != nil {
		return nil, fmt.Errorf("stop container %s: %w", c.rec.ID, err)
	}
	return &api.StopContainerResponse{}, nil
}

func (r *Runtime) stopContainer(ctx context.Context, c *container, grace time.Duration) error {
	if err := r.awaitStart(ctx, c, grace+shimTimeout); err != nil {
		return err
	}
	r.mu.Lock()
	running, s, stopSig := c.state() == api.ContainerState_CONTAINER_RUNNING, r.sandboxes[c.rec.Sandbox], stopSignal(c)
	r.mu.Unlock()
	if !running || s == nil {
		return nil
	}
	if grace > 0 {
		responded, err := r.signalOnce(ctx, grace, s, c, stopSig)
		if err != nil {
			return err
		}
		rest := grace
		if !responded { // the request to the shim took the whole grace period
			rest = 0
		}
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-c.done:
			return nil
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.tasks == nil {
		if responded, err := r.signalWithin(ctx, shimTimeout, s, c, unix.SIGKILL); err != nil {
			return err
		} else if !responded {
			return r.killWithoutShim(ctx, s, c)
		}
	} else if err := r.signalContainer(ctx, s, c, unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(killTimeout):
		return fmt.Errorf("it did not end within %s of SIGKILL", killTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitStart waits until no start of a container is in progress. If a start takes longer than the limit, because its OCI runtime waits for
// a disk or a volume, the processes of the container are killed through its cgroup. The start then fails, at the latest when the shim kills
// the OCI runtime. A containerd shim has no such timeout. If the start takes even longer, the containerd shim itself is killed: see
// taskshim.LimitStart.
func (r *Runtime) awaitStart(ctx context.Context, c *container, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.ops.LockContext(limited, c.rec.ID)
	if err != nil && ctx.Err() == nil {
		r.killStarting(ctx, c)
		if tasks := r.tasksOf(c.rec.Sandbox); tasks != nil {
			defer tasks.LimitStart(c.rec.ID, func() bool { return r.isCreated(c) }).Stop()
		}
		err = r.ops.LockContext(ctx, c.rec.ID)
	}
	if err == nil {
		r.ops.Unlock(c.rec.ID)
	}
	return err
}

// killStarting kills the processes of a container whose start is in progress.
func (r *Runtime) killStarting(ctx context.Context, c *container) {
	s, err := r.findSandbox(c.rec.Sandbox)
	if !r.isCreated(c) || err != nil {
		return
	}
	r.log.Warn("the start of a container has timed out: killing the container's processes", "container", c.rec.ID)
	if _, err := r.killRemaining(ctx, s, c.rec.ID); err != nil {
		r.log.Warn("the processes of a container whose start has timed out could not be killed", "container", c.rec.ID, "error", err)
	}
}

// isCreated reports whether a container has neither started nor ended.
func (r *Runtime) isCreated(c *container) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.state() == api.ContainerState_CONTAINER_CREATED
}

// signalContainer sends a signal to the first process of a container. If the container's shim has died, signalContainer calls
// endWithLostShim and returns nil.
func (r *Runtime) signalContainer(ctx context.Context, s *sandbox, c *container, sig unix.Signal) error {
	client, err := r.startRunner(ctx, s)
	if err == nil {
		err = client.Kill(ctx, wire.KillRequest{ID: c.rec.ID, Signal: int(sig)})
	}
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		r.endWithLostShim(c)
		return nil
	}
	return err
}

// signalWithin sends a signal with a timeout. It returns false if the shim did not respond in time. This can happen under memory pressure,
// when the kernel must read the shim's pages from disk.
func (r *Runtime) signalWithin(
	ctx context.Context, limit time.Duration, s *sandbox, c *container, sig unix.Signal,
) (responded bool, err error) {
	callCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err = r.signalContainer(callCtx, s, c, sig); err != nil && callCtx.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return true, err
}

// signalOnce sends a container its stop signal if that signal was not sent before. Many programs exit immediately when they receive it
// twice. A stop is repeated when the pod's grace period is shortened, and after a restart of the agent. Therefore the record stores that
// the signal was sent. A background task writes the record when the container's lock is free. Like signalWithin, signalOnce returns false
// if the shim did not respond in time.
func (r *Runtime) signalOnce(
	ctx context.Context, limit time.Duration, s *sandbox, c *container, sig unix.Signal,
) (responded bool, err error) {
	r.mu.Lock()
	sent := c.rec.Signaled
	c.rec.Signaled = true
	r.mu.Unlock()
	if sent {
		return true, nil
	}
	if responded, err = r.signalWithin(ctx, limit, s, c, sig); err != nil || !responded {
		r.mu.Lock()
		c.rec.Signaled = ctx.Err() != nil // if the caller stopped waiting, the shim may have received the request
		r.mu.Unlock()
		return responded, err
	}
	r.tasks.Go(func() {
		r.ops.Lock(c.rec.ID)
		defer r.ops.Unlock(c.rec.ID)
		r.mu.Lock()
		running := c.state() == api.ContainerState_CONTAINER_RUNNING
		r.mu.Unlock()
		if !running {
			return
		}
		if err := appendRecord(r.recordPath(c.rec.ID), progress{Signaled: true}, false); err != nil {
			r.log.Warn("the stop signal of a container could not be recorded", "container", c.rec.ID, "error", err)
		}
	})
	return true, nil
}
