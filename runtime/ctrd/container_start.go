package ctrd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/shim/wire"
	"github.com/islet-edge/islet/runtime/taskshim"
)

// Exit code and reason for a container that could not be started. They are the same as in
// containerd.
const (
	startErrorCode   = 128
	startErrorReason = "StartError"
)

// startTimeout is how long a containerd shim may take to start a container before the container's processes on this host are killed. If the
// OCI runtime waits for a volume, the start then fails, and the other containers of the pod continue to run. If the shim does not start the
// container within taskshim.RunTimeout either, the start fails, and the shim is killed if no other container of the pod is running.
const startTimeout = taskshim.RunTimeout - 30*time.Second

// StartContainer runs a created container. It returns no error if the container is already running.
func (r *Runtime) StartContainer(ctx context.Context, req *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := r.checkContainerOwner(ctx, c, "start container"); err != nil {
		return nil, err
	}
	if err := r.ops.LockContext(ctx, c.rec.ID); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	state, s := c.state(), r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	switch {
	case state == api.ContainerState_CONTAINER_RUNNING:
		return &api.StartContainerResponse{}, nil
	case state != api.ContainerState_CONTAINER_CREATED:
		return nil, fmt.Errorf("start container %s: it has already run: %w", c.rec.ID, errdefs.ErrFailedPrecondition)
	case s == nil || !r.isUsable(s):
		return nil, fmt.Errorf("start container %s: its sandbox is not ready: %w", c.rec.ID, errdefs.ErrFailedPrecondition)
	}
	if err := r.restoreRun(); err != nil {
		return nil, fmt.Errorf("start container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	if err := r.startContainer(ctx, s, c); err != nil {
		err = fmt.Errorf("start container %s: %w%s%s", c.config.GetMetadata().GetName(), err, c.memoryHint(), c.schedulingHint())
		if (ctx.Err() == nil || errors.Is(err, taskshim.ErrNotStarted)) && !errdefs.IsUnavailable(err) {
			r.removePin(c)
			r.recordStartError(c, err)
		}
		return nil, err
	}
	r.removePin(c)
	r.notifySubscribers(s.rec.ID, c.rec.ID, api.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &api.StartContainerResponse{}, nil
}

// memoryHint returns a suffix for the error of a failed start. It is empty unless the container's memory limit may be the cause. The error
// of the OCI runtime itself does not name the limit. At best, it says that some limit is too low. The required memory differs: crun starts
// some containers with 256 KiB, runc starts none with 2 MiB. CRI-O rejects limits below 500 KiB for crun, and below 12 MiB for other
// runtimes.
func (c *container) memoryHint() string {
	if limit := c.config.GetLinux().GetResources().GetMemoryLimitInBytes(); limit > 0 && limit < 12<<20 {
		return fmt.Sprintf(" (its memory limit is %d bytes)", limit)
	}
	return ""
}

func (r *Runtime) startContainer(ctx context.Context, s *sandbox, c *container) error {
	client, err := r.startRunner(ctx, s)
	if err != nil {
		return err
	}
	if earlier := r.pendingStart(s, c); earlier != "" {
		return fmt.Errorf("the containerd shim has not completed the start of %s, an earlier attempt: %w", earlier,
			errdefs.ErrFailedPrecondition)
	}
	// The shim starts the container even if ctx is cancelled. Wait without ctx, so that the start
	// is always recorded.
	ctx = context.WithoutCancel(ctx)
	var limit *time.Timer
	if s.tasks != nil {
		limit = time.AfterFunc(startTimeout, func() { r.killStarting(ctx, c) })
	}
	running, err := client.Run(ctx, r.runRequest(s, c))
	if limit != nil {
		limit.Stop()
	}
	if err != nil {
		return err
	}
	r.recordStart(c, running)
	if s.tasks != nil {
		return nil // a containerd shim may need these mounts while the container runs
	}
	// The container has its own copies of these mounts in its mount namespace. Unmounting them here
	// keeps the host's mount table short.
	if err := errors.Join(unmount(filepath.Join(r.bundlePath(c.rec.ID), rootfsDir)), r.unmountVolumes(c.rec.ID)); err != nil {
		r.log.Warn("a container's root file system stays mounted on the host until the container ends", "container", c.rec.ID, "error", err)
	}
	return nil
}

// pendingStart returns the ID of an earlier attempt of a container whose start hangs in a containerd shim, or "". The caller then does not
// start another container: each attempt would leave one more pending start in the shim, and all these containers would run when the shim
// responds again.
func (r *Runtime) pendingStart(s *sandbox, c *container) string {
	if s.tasks == nil {
		return ""
	}
	for _, other := range r.containersOf(s.rec.ID) {
		isSame := other.config.GetMetadata().GetName() == c.config.GetMetadata().GetName()
		if other != c && isSame && s.tasks.IsStarting(other.rec.ID) {
			return other.rec.ID
		}
	}
	return ""
}

// recordStart records that a container is running. If the record cannot be written, for example
// because the disk is full, the container continues to run. A restarted agent learns of the start
// from the shim.
func (r *Runtime) recordStart(c *container, running wire.Running) {
	r.mu.Lock()
	c.rec.StartedAt = running.StartedAt
	if c.pendingExit == nil {
		c.pid = running.Pid
	}
	rec := c.rec
	r.mu.Unlock()
	if err := appendRecord(r.recordPath(rec.ID), progress{StartedAt: rec.StartedAt}, false); err != nil {
		r.log.Error("the start of a container could not be recorded", "container", rec.ID, "error", err)
	}
}

func (r *Runtime) recordPath(id string) string { return filepath.Join(r.containerDir(id), recordFile) }

func (r *Runtime) runRequest(s *sandbox, c *container) wire.RunRequest {
	pid := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid()
	req := wire.RunRequest{
		ID: c.rec.ID, Bundle: r.bundlePath(c.rec.ID), OCI: s.oci, Cgroup: r.cgroupDir(s, c.rec.ID),
		KillAll: pid != api.NamespaceMode_CONTAINER, Plain: c.plain,
		Mounts: c.mounts, Terminal: c.config.GetTty(), Stdin: c.config.GetStdin(), StdinOnce: c.config.GetStdinOnce(),
		Log: wire.Log{MaxBytes: r.c.LogMaxSize, MaxFiles: r.c.LogMaxFiles, Interval: r.c.LogInterval, HardMaxBytes: r.c.LogHardMaxBytes},
	}
	if u := s.userMappings(); u != nil {
		req.Owner = &wire.Owner{UID: u.UIDs.First, GID: u.GIDs.First}
	}
	if dir, name := s.config.GetLogDirectory(), c.config.GetLogPath(); dir != "" && name != "" {
		req.Log.Path = filepath.Join(dir, name)
	}
	return req
}

// recordStartError records the end of a container that could not be started.
func (r *Runtime) recordStartError(c *container, err error) {
	now := time.Now()
	r.finishContainer(c, wire.Exit{Code: startErrorCode, StartedAt: now, FinishedAt: now}, startErrorReason, err.Error())
}
