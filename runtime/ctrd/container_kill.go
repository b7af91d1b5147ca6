package ctrd

import (
	"context"
	"fmt"
	"time"

	"github.com/islet-edge/islet/runtime/cgroup"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// shimAnswers is how long a shim may take to kill a container, and then to report its end, before
// this process does it.
const shimAnswers = 5 * time.Second

// killUnanswered ends a container whose shim does not answer, by its cgroup:
//
//	SIGKILL to the shim --5 s--> kill the cgroup --5 s--> it is empty: record the end
//	     '--------- the shim reports the end at any time ----------'--> as ever
//
// The shim has other pods, and may go on any moment, so it is not ended. What it knows of the
// container it forgets when it goes on, or when the container is removed, which waits for that. It is
// not for containers of a containerd shim, which may be a virtual machine's.
func (r *Runtime) killUnanswered(ctx context.Context, s *sandbox, c *container) error {
	r.log.Error("a shim does not answer: the agent kills a container of it itself", "shim", s.rec.Shim, "container", c.rec.ID)
	path := r.cgroupDir(s, c.rec.ID)
	found, err := cgroup.Kill(ctx, path) // some may take longer to end than it waits
	if err != nil {
		r.log.Warn("a container has not ended yet", "container", c.rec.ID, "error", err)
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(shimAnswers):
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := cgroup.Kill(ctx, path); err != nil {
		if _, known := r.exitFile(c.rec.ID); !known { // it may run, elsewhere than it should
			return fmt.Errorf("its shim does not answer, and it cannot be killed without: %w", err)
		}
	}
	r.tasks.Go(func() {
		r.ops.Lock(c.rec.ID)
		defer r.ops.Unlock(c.rec.ID)
		r.unreported(c, found)
	})
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unreported records the end of a container that its shim did not report, unless that wrote how it
// ended. Killed: it was there to be killed. The container's lock is held.
func (r *Runtime) unreported(c *container, killed bool) {
	exit, ok := r.exitFile(c.rec.ID)
	reason, message := reasonOf(exit), ""
	if !ok {
		exit = wire.Exit{Code: codeKilled, FinishedAt: time.Now()}
		reason, message = reasonError, "the shim that ran this container did not answer, so the agent killed it"
	}
	if !ok && !killed {
		exit.Code, reason, message = codeUnknown, reasonUnknown, "it ended while the shim that ran it did not answer"
	}
	c.unreported = r.record(c, exit, reason, message)
}
