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

// The run directory can be lost while containers run: a cleaner removes it, or a tmpfs is
// mounted on it anew. Its files are therefore no proof of anything that has ended:
//
//	a shim holds the container    it is adopted
//	no shim holds it              its cgroup is killed; only an empty one ends the record
//	a part of a sandbox is gone   the sandbox is not ready: its containers are ended, by
//	                              their shim or by their cgroup, before another one starts
//	a command cannot be started   the same, if a probe or a hook wants it: a pod must not
//	                              stay unready for ever
//
// A boot that has passed (see bootid) only decides what is said of the end.

// runDirs are the directories below RunDir that this process makes.
func (r *Runtime) runDirs() []string {
	return []string{r.dirs.bundles, r.dirs.files, r.dirs.pins, r.dirs.sockets, r.dirs.state}
}

// restoreRun makes directories below RunDir again that somebody removed while this process
// ran. What was in them is lost; usable tells of which sandboxes.
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
	r.log.Error("somebody has removed directories of islet's own while pods ran: pods that need them are started again", "directories", gone)
	for _, dir := range gone {
		if err := daemon.Private(dir); err != nil {
			return fmt.Errorf("make runtime directory again: %w", err)
		}
	}
	if len(r.hidden) > 0 {
		if _, err := r.hide(); err != nil {
			r.log.Warn("starting a container will cost more the more pods there are", "error", err)
		}
	}
	if _, err := bootName(r.c.RunDir, r.born); err != nil {
		r.log.Warn("the next process does not know the containers' IDs of this one", "error", err)
	}
	return nil
}

// whole says whether the parts of a sandbox that are in the run directory are there.
func (r *Runtime) whole(s *sandbox) bool {
	for _, name := range namespaceConfig(s).Names() {
		if !namespace.Pinned(filepath.Join(r.dirs.pins, s.rec.ID, name)) {
			return false
		}
	}
	// On the host's network nothing else of it is there.
	_, err := os.Stat(filepath.Join(r.dirs.files, s.rec.ID, "resolv.conf"))
	return err == nil
}

// usable says whether something can be started in a sandbox. One of which a part has been
// lost is not ready any more from then on, which is told to who watches.
func (r *Runtime) usable(s *sandbox) bool {
	r.mu.Lock()
	ready := s.ready
	r.mu.Unlock()
	if !ready || r.whole(s) {
		return ready
	}
	r.log.Error("a part of a sandbox in the run directory is gone: its pod is started again", "sandbox", s.rec.ID)
	r.damage(s)
	return false
}

// damage makes a sandbox not ready, so that its pod is stopped, as often as that takes, and
// then started anew.
func (r *Runtime) damage(s *sandbox) {
	if s == nil {
		return
	}
	r.mu.Lock()
	was := s.ready
	s.ready, s.damaged = false, true
	r.mu.Unlock()
	if was {
		r.notify(s.rec.ID, s.rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// errLost is why a command cannot be started in a container that runs.
var errLost = errors.New("its files in islet's run directory were removed while it ran, so no command can be started in it: restart its pod")

// commandDir makes the directory for one command in a container. It fails with errLost if what
// the OCI runtime needs to start a command is gone although the container runs.
func (r *Runtime) commandDir(c *container, o cri.ExecOptions) (string, error) {
	var dir string
	err := r.files(c)
	if err == nil {
		dir, err = os.MkdirTemp(r.bundle(c.rec.ID), "exec-")
	}
	if errors.Is(err, os.ErrNotExist) && r.lostFiles(c) {
		err = errLost
		if o.Collect {
			r.mu.Lock()
			s := r.sandboxes[c.rec.Sandbox]
			r.mu.Unlock()
			r.log.Error("no command can be started in a container: its pod is started again", "container", c.rec.ID, "error", err)
			r.damage(s)
		}
	}
	if err != nil {
		return "", fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	}
	return dir, nil
}

// files returns an error unless the files of a container are in the run directory.
func (r *Runtime) files(c *container) error {
	if _, err := os.Lstat(r.bundle(c.rec.ID)); err != nil {
		return err
	}
	if r.tasksOf(c.rec.Sandbox) != nil || r.ociOf(c.rec.Sandbox).Root != r.dirs.state {
		return nil // where the state of a handler's own program is, is its own affair
	}
	_, err := os.Lstat(filepath.Join(r.dirs.state, c.rec.ID))
	return err
}

// lostFiles reports whether a container runs without its files. One that ends or is removed
// meanwhile does not.
func (r *Runtime) lostFiles(c *container) bool {
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	pid, there := c.pid, r.containers[c.rec.ID] == c
	r.mu.Unlock()
	return there && pid > 0 && unix.Kill(pid, 0) == nil && errors.Is(r.files(c), os.ErrNotExist)
}

// endLeft kills what runs of a container, or of a sandbox's init, without a shim and without an
// OCI runtime, and says whether there was anything. Without an error nothing of it runs.
func (r *Runtime) endLeft(ctx context.Context, s *sandbox, id string) (found bool, err error) {
	if s == nil {
		return false, nil
	}
	if found, err = cgroup.KillEverywhere(ctx, r.cgroupDir(s, id)); err != nil {
		return found, fmt.Errorf("kill what is left of %s: %w", id, err)
	}
	return found, nil
}

// endUnheld ends a container that no shim holds, at the start of this process. One that was
// created only is not touched, unless its start was not recorded.
func (r *Runtime) endUnheld(ctx context.Context, c *container) {
	if c.state() == api.ContainerState_CONTAINER_RUNNING {
		r.lost(c)
		return
	}
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	found, err := r.endLeft(ctx, s, c.rec.ID)
	switch {
	case err != nil:
		r.log.Error("a container without a shim was not killed", "container", c.rec.ID, "error", err)
		r.damage(s)
	case found:
		exit, reason, message := r.endWithoutShim(c, true, true)
		exit.StartedAt = exit.FinishedAt
		r.finish(c, exit, reason, message)
	}
}

// endInits ends the inits of sandboxes that no shim holds.
func (r *Runtime) endInits(ctx context.Context, held map[string]adopted) {
	for id, s := range r.sandboxes {
		if _, ok := held[id]; ok || !s.hasInit() {
			continue
		}
		if s.tasks != nil && s.tasks.Connected() {
			continue
		}
		if _, err := r.endLeft(ctx, s, id); err != nil {
			r.log.Error("the init process of a sandbox without a shim was not killed", "sandbox", id, "error", err)
			r.damage(s)
		}
	}
}

// endWithoutShim says how a container ended that no shim held. There: its bundle was still
// there. Killed: some of it still ran.
func (r *Runtime) endWithoutShim(c *container, there, killed bool) (wire.Exit, string, string) {
	exit := wire.Exit{Code: codeKilled, FinishedAt: time.Now()}
	switch {
	case there:
		return exit, reasonShimLost, "the shim that ran this container has died, so the container was killed"
	case killed:
		return exit, reasonShimLost, "islet's run directory was lost while this container ran, so the container was killed"
	}
	exit.Code = codeUnknown
	if c.rec.Boot != "" && c.rec.Boot == r.born {
		return exit, reasonUnknown, "the container ended, and how is not known: islet's run directory was lost"
	}
	return exit, reasonUnknown, "the machine was restarted while this container ran"
}

// forget makes a shim that lives, and the OCI runtime, forget a container whose bundle was lost. The container's lock
// is held.
func (r *Runtime) forget(ctx context.Context, c *container) {
	if c.tidied {
		return
	}
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if s == nil {
		return
	}
	if client := r.connected(s); client != nil {
		if err := ignoreNotFound(client.Delete(ctx, c.rec.ID)); err != nil {
			r.log.Warn("a shim does not forget a container whose bundle was lost", "container", c.rec.ID, "error", err)
		}
	}
	if s.tasks == nil { // the shim's own way to it leads through the bundle
		if err := r.ociDelete(ctx, s.oci, c.rec.ID); err != nil {
			r.log.Warn("an OCI runtime's state of a container whose bundle was lost was not removed", "container", c.rec.ID, "error", err)
		}
	}
}
