package ctrd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// handleEnd handles a shim's report that a container has ended. The parameter pid is the PID of its first process, or 0 if it is not known.
// handleEnd does not block.
func (r *Runtime) handleEnd(id string, pid int, exit wire.Exit) {
	r.mu.Lock()
	c := r.containers[id]
	if c == nil {
		s := cmp.Or(r.starting[id], r.sandboxes[id])
		r.mu.Unlock()
		if s != nil {
			r.handleInitExit(s, pid)
		}
		return
	}
	reported := c.pendingExit != nil
	c.pendingExit = &exit
	r.mu.Unlock()
	if reported {
		return
	}
	r.tasks.Go(func() {
		// StartContainer holds this lock until the start is recorded.
		r.ops.Lock(id)
		defer r.ops.Unlock(id)
		r.finishContainer(c, exit, reasonOf(exit), "")
	})
}

// finishContainer records the end of a container and removes its bundle and the shim's state. The caller
// holds the container's lock.
func (r *Runtime) finishContainer(c *container, exit wire.Exit, reason, message string) {
	if r.recordEnd(c, exit, reason, message) || c.unreported {
		r.cleanUpEnded(c)
	}
}

// writtenAfter is the time after which the kernel has certainly written a file to the disk. By default, it begins after 30 s.
const writtenAfter = 10 * time.Minute

// recordEnd stores the end of a container durably and sends the event. It returns false if the end was
// already stored or could not be stored. If it could not be stored, the shim must keep the exit for
// the next process. The caller holds the container's lock.
func (r *Runtime) recordEnd(c *container, exit wire.Exit, reason, message string) bool {
	r.mu.Lock()
	if !c.rec.FinishedAt.IsZero() {
		r.mu.Unlock()
		return false
	}
	rec := c.rec
	if rec.StartedAt.IsZero() {
		rec.StartedAt = exit.StartedAt
	}
	rec.FinishedAt, rec.ExitCode, rec.Reason, rec.Message = exit.FinishedAt, exit.Code, reason, message
	end, s := containerEnd{progress: rec.progress}, r.sandboxes[rec.Sandbox]
	r.mu.Unlock()
	if s != nil && time.Since(s.rec.CreatedAt) < writtenAfter {
		end.PodSandbox = r.completeRecord(s)
	}
	err := appendRecord(r.recordPath(rec.ID), end, true)
	if err != nil && end.PodSandbox != nil { // a full disk may have room for the end alone
		err = appendRecord(r.recordPath(rec.ID), rec.progress, true)
	}
	if err != nil {
		r.log.Error("the end of a container could not be recorded", "container", rec.ID, "error", err)
	}
	r.mu.Lock()
	c.rec.progress, c.pid = rec.progress, 0 // the other fields never change and are read without the lock
	close(c.done)
	r.mu.Unlock()
	r.notifySubscribers(rec.Sandbox, rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return err == nil
}

// cleanUpEnded removes the resources of an ended container: its mounts, its bundle, and the state
// of the shim and the OCI runtime. If that fails, the cleanup is repeated when the container is
// removed. The caller holds the container's lock.
func (r *Runtime) cleanUpEnded(c *container) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := r.releaseContainer(ctx, c); err != nil {
		r.log.Warn("an ended container was not cleaned up: the cleanup is repeated when it is removed", "container", c.rec.ID, "error", err)
	}
}

// releaseContainer deletes an ended container from its shim and removes its bundle.
func (r *Runtime) releaseContainer(ctx context.Context, c *container) error {
	if _, err := os.Stat(r.bundlePath(c.rec.ID)); errors.Is(err, os.ErrNotExist) {
		r.deleteLost(ctx, c)
		return nil
	}
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	forgotten := false
	if s != nil {
		if client := r.connectedRunner(s); client != nil {
			err := client.Delete(ctx, c.rec.ID)
			if err != nil && s.lacksProgram() {
				err = r.deleteWithoutProgram(ctx, s, c.rec.ID, client.Delete)
			}
			if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
				return err
			}
			forgotten = err == nil
		}
	}
	if !forgotten {
		if err := r.forceDelete(ctx, s, c.rec.ID); err != nil {
			return err
		}
	}
	if err := r.removeBundle(c.rec.ID); err != nil {
		return err
	}
	c.cleanedUp = true
	return nil
}

// endWithLostShim ends a container whose shim has died. If the shim stored the exit in the bundle,
// that exit is recorded. Otherwise the container is killed, and its end is recorded if no process
// is left. The caller does not hold the container's lock.
func (r *Runtime) endWithLostShim(c *container) {
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	running, ending, id, started := c.state() == api.ContainerState_CONTAINER_RUNNING, c.pendingExit, c.rec.ID, c.rec.StartedAt
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if !running || ending != nil {
		return
	}
	if exit, ok := r.exitFile(id); ok {
		r.finishContainer(c, exit, reasonOf(exit), "")
		return
	}
	_, noBundle := os.Stat(r.bundlePath(id))
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	deleted := r.forceDelete(ctx, s, id)
	found, err := r.killRemaining(ctx, s, id)
	if err != nil { // processes may still run, so do not record an end
		r.log.Error("a container without a shim could not be killed", "container", id, "error", errors.Join(deleted, err))
		r.markDamaged(s)
		return
	}
	if deleted != nil {
		r.log.Warn("the OCI runtime's state of a container without a shim could not be removed", "container", id, "error", deleted)
	}
	exit, reason, message := r.endWithoutShim(c, noBundle == nil, found)
	exit.StartedAt = started
	r.finishContainer(c, exit, reason, message)
}

// exitFile reads the exit that a shim stored in the bundle.
func (r *Runtime) exitFile(id string) (wire.Exit, bool) {
	var e wire.Exit
	b, err := os.ReadFile(filepath.Join(r.bundlePath(id), wire.ExitFile))
	return e, err == nil && json.Unmarshal(b, &e) == nil
}
