package ctrd

import (
	"context"
	"fmt"
	"time"

	"github.com/islet-edge/islet/runtime/cgroup"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// shimTimeout limits the wait for a shim to execute a kill request. After this time, the agent kills the container's cgroup, and waits at
// most shimTimeout for the shim to report the end.
const shimTimeout = 5 * time.Second

// killWithoutShim kills the cgroup of a container whose shim does not respond:
//
//	SIGKILL to the shim --5 s--> kill the cgroup --5 s--> it is empty: record the end
//	     '--------- the shim reports the end at any time ----------'--> the usual path
//
// The shim itself is not killed, because it serves other pods and may respond again at any moment.
// When the shim responds again, it deletes its state of the container. The container is removed only after that. Containers of a containerd
// shim are not killed this way, because they may run in a virtual machine.
func (r *Runtime) killWithoutShim(ctx context.Context, s *sandbox, c *container) error {
	r.log.Error("the shim does not respond: killing its container through the cgroup", "shim", s.rec.Shim, "container", c.rec.ID)
	path := r.cgroupDir(s, c.rec.ID)
	found, err := cgroup.Kill(ctx, path) // processes may take longer to end than Kill waits
	if err != nil {
		r.log.Warn("the killed container has not ended yet", "container", c.rec.ID, "error", err)
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(shimTimeout):
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := cgroup.Kill(ctx, path); err != nil {
		if _, stored := r.exitFile(c.rec.ID); !stored { // processes may run outside the cgroup
			return fmt.Errorf("its shim does not respond, and killing its cgroup failed: %w", err)
		}
	}
	r.tasks.Go(func() {
		r.ops.Lock(c.rec.ID)
		defer r.ops.Unlock(c.rec.ID)
		r.recordEndWithoutShim(c, found)
	})
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recordEndWithoutShim records the end of a container that its shim did not report. The exit is read
// from the shim's exit file. If that file is missing, the exit code is 137 if processes of the
// container were killed, and otherwise unknown. The caller holds the container's lock.
func (r *Runtime) recordEndWithoutShim(c *container, killed bool) {
	exit, ok := r.exitFile(c.rec.ID)
	reason, message := reasonOf(exit), ""
	if !ok {
		exit = wire.Exit{Code: codeKilled, FinishedAt: time.Now()}
		reason, message = reasonError, "the container was killed by the agent, because its shim did not respond"
	}
	if !ok && !killed {
		exit.Code, reason, message = codeUnknown, reasonUnknown, "the container ended while its shim did not respond"
	}
	c.unreported = r.recordEnd(c, exit, reason, message)
}
