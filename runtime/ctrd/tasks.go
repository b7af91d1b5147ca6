package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/drain"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
	"github.com/islet-edge/islet/runtime/taskshim"
)

// A runner runs the containers of a sandbox. It is either one of islet's own shims or the sandbox's
// containerd shim.
type runner interface {
	Run(context.Context, wire.RunRequest) (wire.Running, error)
	Kill(context.Context, wire.KillRequest) error
	Delete(ctx context.Context, id string) error
	DeleteEnded(ctx context.Context, id string) error
	ReopenLog(ctx context.Context, id string) error
	Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer, resize <-chan shim.Size) error
}

// startRunner returns the runner of a sandbox. It starts a shim of islet if that is not running. A
// containerd shim is started only once, together with its sandbox.
func (r *Runtime) startRunner(ctx context.Context, s *sandbox) (runner, error) {
	if s.tasks != nil {
		return s.tasks, nil
	}
	return r.shims.startClient(ctx, s.rec.Shim)
}

// connectedRunner returns the runner of a sandbox, or nil if it is not running.
func (r *Runtime) connectedRunner(s *sandbox) runner {
	if s.tasks != nil {
		if s.tasks.Connected() {
			return s.tasks
		}
	} else if c := r.shims.connectedClient(s.rec.Shim); c != nil {
		return c
	}
	return nil
}

// tasksOf returns the containerd shim of a sandbox, or nil.
func (r *Runtime) tasksOf(sandbox string) *taskshim.Shim {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[sandbox]; s != nil {
		return s.tasks
	}
	return nil
}

// forceDelete kills a container and removes the OCI runtime's state of that container, without
// calling islet's shim. It returns no error if the container does not exist.
func (r *Runtime) forceDelete(ctx context.Context, s *sandbox, id string) error {
	switch {
	case s == nil:
		return r.ociDelete(ctx, r.ociOfState(id), id)
	case s.tasks != nil:
		return s.tasks.Discard(ctx, id)
	}
	return r.ociDelete(ctx, s.oci, id)
}

// taskEvents receives the events of containerd shims. It is opened when the first sandbox with such
// a shim is created. The zero value is ready.
type taskEvents struct {
	mu sync.Mutex
	*taskshim.Events
}

func (r *Runtime) eventsSocket() string { return filepath.Join(r.dirs.tasks, "events.sock") }

// newTasks returns the containerd shim of a sandbox, which is not started yet.
func (r *Runtime) newTasks(s *sandbox, config string) (*taskshim.Shim, error) {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	// If the socket was removed together with the run directory (see run_lost.go), open it again.
	if _, err := os.Lstat(r.eventsSocket()); r.events.Events != nil && errors.Is(err, os.ErrNotExist) {
		r.events.Close()
		r.events.Events = nil
	}
	if r.events.Events == nil {
		if err := daemon.CreatePrivateDir(r.dirs.tasks); err != nil {
			return nil, fmt.Errorf("create runtime directory: %w", err)
		}
		var err error
		if r.events.Events, err = taskshim.ServeEvents(r.eventsSocket()); err != nil {
			return nil, err
		}
	}
	id := s.rec.ID
	return taskshim.New(taskshim.Config{
		ID: id, Program: s.rec.Program, ConfigFile: config, OCI: s.oci,
		Bundles: r.dirs.bundles, Sockets: r.dirs.tasks, Events: r.eventsSocket(),
		Streams:   func(ctx context.Context) (*shim.Client, error) { return r.shims.startClient(ctx, s.rec.Shim) },
		Connected: func() *shim.Client { return r.shims.connectedClient(s.rec.Shim) },
		Ended: func(c wire.Container) {
			if c.ID == id {
				r.handleInitEnd(s)
			} else {
				r.handleEnd(c.ID, c.Pid, *c.Exit)
			}
		},
		Gone: func() { r.tasksGone(s) },
		OOM:  r.outOfMemory, Logger: r.log,
	}), nil
}

// outOfMemory reports whether a container of a containerd shim has run out of memory. It reports
// each event only once.
func (r *Runtime) outOfMemory(id string) bool {
	r.events.mu.Lock()
	events := r.events.Events
	r.events.mu.Unlock()
	return events.OOM(id)
}

// tasksGone ends the containers of a containerd shim that has died.
func (r *Runtime) tasksGone(s *sandbox) {
	r.log.Error("a containerd shim has died: its containers are ended", "sandbox", s.rec.ID)
	r.tasks.Go(func() { r.endPodOfShim(s.rec.ID, s) })
}

// closeTasks closes the connections to all containerd shims. Their containers continue to run.
func (r *Runtime) closeTasks() {
	r.mu.Lock()
	var list []*taskshim.Shim
	for _, s := range r.sandboxes {
		if s.tasks != nil {
			list = append(list, s.tasks)
		}
	}
	r.mu.Unlock()
	for _, t := range list {
		t.Close()
	}
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	if r.events.Events != nil {
		r.events.Close()
	}
}

// endTasks shuts down the containerd shim of a sandbox whose containers have ended.
func (r *Runtime) endTasks(ctx context.Context, s *sandbox) error {
	if s.tasks == nil {
		return nil
	}
	for _, c := range r.containersOf(s.rec.ID) {
		if err := r.ops.LockContext(ctx, c.rec.ID); err != nil { // wait for the cleanup of a container that has just ended
			return err
		}
		err := ignoreNotFound(s.tasks.Discard(ctx, c.rec.ID))
		r.ops.Unlock(c.rec.ID)
		if err != nil {
			return err
		}
	}
	if err := s.tasks.Shutdown(ctx); err != nil {
		return fmt.Errorf("shut down the containerd shim: %w", err)
	}
	return nil
}

// adoptTasks connects to the running containerd shims and lists their containers. A shim that does not respond is killed. There is one shim
// per pod, so many shims are called at the same time: their timeouts do not add up. If this process has no free file descriptor or memory,
// adoptTasks returns an error, and the shims keep running.
func (r *Runtime) adoptTasks(ctx context.Context, adopted map[string]adoptedContainer) error {
	var calls errgroup.Group
	calls.SetLimit(16)
	for id, s := range r.sandboxes {
		if s.tasks == nil {
			continue
		}
		calls.Go(func() error {
			list, err := r.listTasks(ctx, s)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if readonly.IsShortage(err) {
				return fmt.Errorf("the containerd shim of sandbox %s may be running: %w", id, err)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) { // the sandbox will be recreated
				r.log.Error("a containerd shim does not respond: its pod is started again", "sandbox", id, "error", err)
				s.tasks.Abandon()
			}
			r.mu.Lock() // also guards adopted here
			for _, c := range list {
				if recorded := r.containers[c.ID]; recorded != nil && !recorded.rec.StartedAt.IsZero() {
					c.StartedAt = recorded.rec.StartedAt
				}
				adopted[c.ID] = adoptedContainer{c, s.tasks}
			}
			r.mu.Unlock()
			return nil
		})
	}
	return calls.Wait()
}

// listTasks connects to a containerd shim and lists its containers. If the list fails, it closes the connection.
func (r *Runtime) listTasks(ctx context.Context, s *sandbox) ([]wire.Container, error) {
	ids := []string{s.rec.ID}
	for _, c := range r.containersOf(s.rec.ID) {
		ids = append(ids, c.rec.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := s.tasks.Load(ctx); err != nil {
		return nil, err
	}
	list, err := s.tasks.List(ctx, ids)
	if err != nil {
		s.tasks.Close()
	}
	return list, err
}

// endTasksOf shuts down the containerd shim that a bundle refers to. Its sandbox is incomplete or
// unknown, because the agent that started the shim ended before it recorded the sandbox.
func (r *Runtime) endTasksOf(ctx context.Context, id string) error {
	if tasks := r.tasksOf(id); tasks != nil {
		return tasks.Discard(ctx, id)
	}
	if _, err := os.Stat(filepath.Join(r.bundlePath(id), taskshim.StateFile)); err != nil {
		return nil
	}
	s := &sandbox{rec: sandboxRecord{ID: id}}
	var err error
	if s.tasks, err = r.newTasks(s, ""); err != nil {
		return err
	}
	if err := s.tasks.Load(ctx); err != nil {
		return s.tasks.Discard(ctx, id)
	}
	return errors.Join(s.tasks.Discard(ctx, id), r.endTasks(ctx, s))
}

// addAnnotations sets the annotations that tell a containerd shim to which pod and container a specification belongs. The first
// container represents the sandbox. Its configuration is nil.
func (s *sandbox) addAnnotations(spec *specs.Spec, ctr *api.ContainerConfig) {
	const prefix = "io.kubernetes.cri."
	m := s.config.GetMetadata()
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	set := func(name, value string) { spec.Annotations[prefix+name] = value }
	set("sandbox-id", s.rec.ID)
	set("sandbox-name", m.GetName())
	set("sandbox-namespace", m.GetNamespace())
	set("sandbox-uid", m.GetUid())
	if ctr != nil {
		set("container-type", "container")
		set("container-name", ctr.GetMetadata().GetName())
		set("image-name", ctr.GetImage().GetImage())
		return
	}
	set("container-type", "sandbox")
	set("sandbox-log-directory", s.config.GetLogDirectory())
	if res := s.config.GetLinux().GetResources(); res != nil { // they determine the size of a virtual machine
		set("sandbox-cpu-period", strconv.FormatInt(res.GetCpuPeriod(), 10))
		set("sandbox-cpu-quota", strconv.FormatInt(res.GetCpuQuota(), 10))
		set("sandbox-cpu-shares", strconv.FormatInt(res.GetCpuShares(), 10))
		set("sandbox-memory", strconv.FormatInt(res.GetMemoryLimitInBytes(), 10))
	}
}

// execTask runs a command through a containerd shim. See taskshim.Exec for stuck.
func (r *Runtime) execTask(ctx context.Context, tasks *taskshim.Shim, c *container, o cri.ExecOptions, stuck func()) error {
	dir, err := r.commandDir(c, o)
	if err != nil {
		return err
	}
	defer mounts.RemoveAll(dir)
	p, err := r.execProcess(c.rec.ID, o)
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := taskshim.Exec{ID: c.rec.ID, Dir: dir, Process: p, Stdin: o.Stdin, Resize: shimSizes(ctx, o.Resize), Stuck: stuck}
	if o.Stdout != nil {
		e.Stdout = o.Stdout
	}
	if o.Stderr != nil {
		e.Stderr = o.Stderr
	}
	if o.Collect {
		e.Children = collectTimeout
	}
	code, err := tasks.Exec(ctx, e)
	var lost *drain.LostError
	switch {
	case err != nil && caller.Err() != nil:
		return caller.Err()
	case errors.As(err, &lost):
		return &undeliveredError{deliveryError: lost, exitStatus: fmt.Sprintf("exit status %d", code)}
	case err != nil:
		return fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	case code != 0:
		return cri.ExitError{Code: int32(code)}
	}
	return nil
}
