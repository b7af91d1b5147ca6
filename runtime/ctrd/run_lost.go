package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cgroup"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// The run directory can be lost while containers run: a cleanup tool removes it, or a tmpfs is
// mounted over it. So missing files do not prove that a container has ended:
//
//	a shim has the container      it is adopted
//	no shim has it                its cgroup is killed; the end is recorded once it is empty
//	a part of a sandbox is gone   the sandbox is not ready: its containers are killed by their
//	                              shim or through their cgroup before new containers start
//	a command cannot be started   the same, but only if the command is a probe or a hook: the pod
//	                              would otherwise stay unready forever
//
// Whether the machine was rebooted (see bootid) affects only the reason and the message of the end.

// runDirs are the directories below RunDir that this process creates.
func (r *Runtime) runDirs() []string {
	return []string{r.dirs.bundles, r.dirs.files, r.dirs.pins, r.dirs.sockets, r.dirs.state}
}

// restoreRun recreates directories below RunDir that were removed while this process ran. Their content is lost, and
// isUsable finds the affected sandboxes.
func (r *Runtime) restoreRun() error {
	missing := func() (out []string) {
		for _, dir := range r.runDirs() {
			if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
				out = append(out, dir)
			}
		}
		return out
	}
	if len(missing()) == 0 {
		return nil
	}
	r.restoring.Lock()
	defer r.restoring.Unlock()
	gone := missing()
	if len(gone) == 0 {
		return nil
	}
	r.log.Error("directories of islet were removed while pods ran: pods that need them are started again", "directories", gone)
	for _, dir := range gone {
		if err := daemon.CreatePrivateDir(dir); err != nil {
			return fmt.Errorf("recreate runtime directory: %w", err)
		}
	}
	if len(r.hidden) > 0 {
		if _, err := r.hideMounts(); err != nil {
			r.log.Warn("the mounts of pods cannot be hidden from shims: every additional pod makes the start of a container slower",
				"error", err)
		}
	}
	if _, err := bootName(r.c.RunDir, r.bootID); err != nil {
		r.log.Warn("the next process will create other container IDs than this process", "error", err)
	}
	return nil
}

// hasFiles reports whether the sandbox's files and pinned namespaces exist in the run directory.
func (r *Runtime) hasFiles(s *sandbox) bool {
	for _, name := range namespaceConfig(s).Names() {
		if !namespace.IsPinned(filepath.Join(r.dirs.pins, s.rec.ID, name)) {
			return false
		}
	}
	// A sandbox without namespaces of its own has no pins, so check one of its files too.
	_, err := os.Stat(filepath.Join(r.dirs.files, s.rec.ID, "resolv.conf"))
	return err == nil
}

// isUsable reports whether containers can be started in a sandbox. If a part of the sandbox is lost,
// isUsable marks it as not ready and sends an event to subscribers.
func (r *Runtime) isUsable(s *sandbox) bool {
	r.mu.Lock()
	ready := s.ready
	r.mu.Unlock()
	if !ready || r.hasFiles(s) {
		return ready
	}
	r.log.Error("a sandbox has lost files in the run directory: its pod is started again", "sandbox", s.rec.ID)
	r.markDamaged(s)
	return false
}

// markDamaged marks a sandbox as permanently not ready. The agent then stops its pod, with retries, and
// starts the pod again.
func (r *Runtime) markDamaged(s *sandbox) {
	if s == nil {
		return
	}
	r.mu.Lock()
	wasReady := s.ready
	s.ready, s.damaged = false, true
	r.mu.Unlock()
	if wasReady {
		r.notifySubscribers(s.rec.ID, s.rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// errLost is the error of exec in a running container whose files are lost.
var errLost = errors.New("its files in islet's run directory were removed while it ran, so no command can be started in it: " +
	"restart its pod")

// commandDir creates the directory of one command in a container. It returns errLost if the
// container is running but the files that the OCI runtime needs do not exist.
func (r *Runtime) commandDir(c *container, o cri.ExecOptions) (string, error) {
	var dir string
	err := r.checkFiles(c)
	if err == nil {
		dir, err = os.MkdirTemp(r.bundlePath(c.rec.ID), "exec-")
	}
	if errors.Is(err, os.ErrNotExist) && r.lostFiles(c) {
		err = errLost
		if o.Collect {
			r.mu.Lock()
			s := r.sandboxes[c.rec.Sandbox]
			r.mu.Unlock()
			r.log.Error("no command can be started in a container any more: its pod is started again", "container", c.rec.ID, "error", err)
			r.markDamaged(s)
		}
	}
	if err != nil {
		return "", fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	}
	return dir, nil
}

// checkFiles returns an error if the container's files are missing in the run directory.
func (r *Runtime) checkFiles(c *container) error {
	if _, err := os.Lstat(r.bundlePath(c.rec.ID)); err != nil {
		return err
	}
	if r.tasksOf(c.rec.Sandbox) != nil || r.ociOf(c.rec.Sandbox).Root != r.dirs.state {
		return nil // the program of a handler chooses the location of its state
	}
	_, err := os.Lstat(filepath.Join(r.dirs.state, c.rec.ID))
	return err
}

// lostFiles reports whether a container is running without its files. It returns false for a
// container that is ending or being removed.
func (r *Runtime) lostFiles(c *container) bool {
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	pid, exists := c.pid, r.containers[c.rec.ID] == c
	r.mu.Unlock()
	return exists && pid > 0 && unix.Kill(pid, 0) == nil && errors.Is(r.checkFiles(c), os.ErrNotExist)
}

// killRemaining kills the processes of a container, or of a sandbox's init, through its cgroup. It needs neither a shim nor an OCI runtime.
// It returns true if there were any processes. After a nil error, no process is left.
func (r *Runtime) killRemaining(ctx context.Context, s *sandbox, id string) (found bool, err error) {
	if s == nil {
		return false, nil
	}
	if found, err = cgroup.KillEverywhere(ctx, r.cgroupDir(s, id)); err != nil {
		return found, fmt.Errorf("kill the remaining processes of %s: %w", id, err)
	}
	return found, nil
}

// endUnreported handles a container that no shim reported at the start of this process. It ends the container if its record says that it
// runs. It also ends a container whose record says that it was only created, if the container has processes: its start was not recorded. A
// created container without processes is kept.
func (r *Runtime) endUnreported(ctx context.Context, c *container) {
	if c.state() == api.ContainerState_CONTAINER_RUNNING {
		r.endWithLostShim(c)
		return
	}
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	found, err := r.killRemaining(ctx, s, c.rec.ID)
	switch {
	case err != nil:
		r.log.Error("a container without a shim could not be killed", "container", c.rec.ID, "error", err)
		r.markDamaged(s)
	case found:
		exit, reason, message := r.endWithoutShim(c, true, true)
		exit.StartedAt = exit.FinishedAt
		r.finishContainer(c, exit, reason, message)
	}
}

// endInits kills the init processes of sandboxes that no shim reported.
func (r *Runtime) endInits(ctx context.Context, adopted map[string]adoptedContainer) {
	for id, s := range r.sandboxes {
		if _, ok := adopted[id]; ok || !s.hasInit() {
			continue
		}
		if s.tasks != nil && s.tasks.Connected() {
			continue
		}
		if _, err := r.killRemaining(ctx, s, id); err != nil {
			r.log.Error("the init process of a sandbox without a shim could not be killed", "sandbox", id, "error", err)
			r.markDamaged(s)
		}
	}
}

// endWithoutShim returns the exit, reason and message of a container that no shim reported. They depend on whether the container's bundle
// existed, and whether it still had processes, which were killed.
func (r *Runtime) endWithoutShim(c *container, hadBundle, killed bool) (wire.Exit, string, string) {
	exit := wire.Exit{Code: codeKilled, FinishedAt: time.Now()}
	switch {
	case hadBundle:
		return exit, reasonShimLost, "the shim that ran this container has died, so the container was killed"
	case killed:
		return exit, reasonShimLost, "islet's run directory was lost while this container ran, so the container was killed"
	}
	exit.Code = codeUnknown
	if c.rec.Boot != "" && c.rec.Boot == r.bootID {
		return exit, reasonUnknown, "the container ended with an unknown exit code, because islet's run directory was lost"
	}
	return exit, reasonUnknown, "the machine was restarted while this container ran"
}

// deleteLost deletes a container whose bundle was lost. It deletes the container from its shim, if
// the shim is running, and from the OCI runtime. The caller holds the container's lock.
func (r *Runtime) deleteLost(ctx context.Context, c *container) {
	if c.cleanedUp {
		return
	}
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if s == nil {
		return
	}
	if client := r.connectedRunner(s); client != nil {
		if err := ignoreNotFound(client.Delete(ctx, c.rec.ID)); err != nil {
			r.log.Warn("a container whose bundle was lost could not be deleted from its shim", "container", c.rec.ID, "error", err)
		}
	}
	if s.tasks == nil { // the shim finds the OCI runtime's state only through the bundle
		if err := r.ociDelete(ctx, s.oci, c.rec.ID); err != nil {
			r.log.Warn("the OCI runtime's state of a container whose bundle was lost could not be removed",
				"container", c.rec.ID, "error", err)
		}
	}
}
