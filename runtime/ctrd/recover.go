package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// recoverState restores the state from the records, the shims and the run directory. It ends containers
// whose shim has died, and removes files and processes that belong to no known container.
func (r *Runtime) recoverState(ctx context.Context) error {
	if err := r.loadSandboxes(); err != nil {
		return err
	}
	if err := r.loadContainers(); err != nil {
		return err
	}
	adopted, err := r.adoptShims(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func(){
		r.endShimsWithoutSocket,
		func() { r.adoptContainers(ctx, adopted) },
		func() { r.endInits(ctx, adopted) },
		func() { r.adoptSandboxes(adopted) },
		func() { r.removeUnknown(ctx, adopted) },
	} {
		if ctx.Err() != nil { // the agent is being stopped: the next process continues
			return ctx.Err()
		}
		step()
	}
	return ctx.Err()
}

// loadSandboxes reads the sandboxes' records. It removes a record that cannot be decoded: only a
// power cut leaves such a record, and the power cut has also ended the sandbox. If there is no free file
// descriptor or memory, loadSandboxes returns an error, because the record may be valid.
func (r *Runtime) loadSandboxes() error {
	entries, err := r.readablePart(os.ReadDir(r.dirs.sandboxes))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(r.dirs.sandboxes, e.Name())
		s := &sandbox{config: &api.PodSandboxConfig{}}
		err := readRecord(path, &s.rec)
		if err == nil {
			err = proto.Unmarshal(s.rec.Config, s.config)
		}
		if errors.Is(err, errNewer) || readonly.IsShortage(err) {
			return err
		}
		if readonly.IsDiskFault(err) {
			r.log.Error("a sandbox's record cannot be read from the disk: its pod is started again", "path", path, "error", err)
			r.occupied[strings.TrimSuffix(e.Name(), ".json")] = true
			continue
		}
		if err != nil || s.rec.ID+".json" != e.Name() {
			r.log.Warn("a sandbox's record is invalid and is removed", "path", path, "error", err)
			if err := mounts.RemoveAll(path); err != nil {
				r.log.Error("a sandbox's invalid record could not be removed", "path", path, "error", err)
				r.occupied[strings.TrimSuffix(e.Name(), ".json")] = true
			}
			continue
		}
		if err := r.addRecorded(s); err != nil {
			return err
		}
	}
	return nil
}

// addRecorded adds a sandbox whose record and configuration were read.
func (r *Runtime) addRecorded(s *sandbox) (err error) {
	if s.rec.Resized != nil {
		s.resized = &api.LinuxPodSandboxConfig{}
		if err := proto.Unmarshal(s.rec.Resized, s.resized); err != nil {
			r.log.Warn("the resized resources of a sandbox cannot be read", "sandbox", s.rec.ID, "error", err)
		}
	}
	s.rec.Config, s.rec.Resized = nil, nil
	s.oci = r.recordedOCI(s.rec)
	if s.rec.Tasks {
		if s.tasks, err = r.newTasks(s, ""); err != nil {
			return err
		}
	}
	r.sandboxes[s.rec.ID] = s
	r.podSandboxes.put(s.config.GetLabels(), s.rec.ID, s)
	r.selinux.ReserveLevel(s.rec.Level)
	r.shims.mu.Lock()
	r.shims.put(s.rec.ID, s.rec.Shim)
	r.shims.mu.Unlock()
	return nil
}

func (r *Runtime) loadContainers() error {
	entries, err := r.readablePart(os.ReadDir(r.dirs.containers))
	if err != nil {
		return err
	}
	var loaded []*container
	for _, e := range entries {
		c := &container{config: &api.ContainerConfig{}, done: make(chan struct{})}
		err := readRecord(r.recordPath(e.Name()), &c.rec)
		if err == nil {
			err = proto.Unmarshal(c.rec.Config, c.config)
		}
		if errors.Is(err, errNewer) || readonly.IsShortage(err) {
			return err
		}
		if readonly.IsDiskFault(err) {
			r.log.Error("a container's record cannot be read from the disk: the container is killed", "container", e.Name(), "error", err)
		}
		if err != nil || c.rec.ID != e.Name() {
			continue // sweep will remove its directory and bundle
		}
		if err := r.restoreSandbox(c); err != nil {
			return err
		}
		loaded = append(loaded, c)
	}
	for _, c := range loaded {
		if r.sandboxes[c.rec.Sandbox] == nil {
			continue // its sandbox is unknown
		}
		if err := dropSecrets(r.recordPath(c.rec.ID), c); err != nil {
			r.log.Warn("a container's record still contains its environment, which may include secrets, until the container is removed",
				"container", c.rec.ID, "error", err)
		}
		c.rec.Config = nil
		if c.state() == api.ContainerState_CONTAINER_EXITED {
			close(c.done)
		}
		if s := r.sandboxes[c.rec.Sandbox]; s.rec.Handler == "" && s.rec.Program == "" {
			s.oci = r.ociOfState(c.rec.ID)
		}
		r.containers[c.rec.ID] = c
		r.podContainers.put(c.config.GetLabels(), c.rec.ID, c)
	}
	return nil
}

// An adoptedContainer is a container that a shim reports.
type adoptedContainer struct {
	wire.Container
	client runner
}

// listTimeout limits the time for a running shim to list its containers.
const listTimeout = 30 * time.Second

// isShimDead reports whether the error of a connection proves that no process listens at the shim's socket. No other error proves it:
// this process may have no free file descriptor or memory, or its context has ended.
func isShimDead(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// adoptShims connects to the running shims and lists their containers. A shim that does not respond
// is killed. If it is unknown whether a shim is running, adoptShims returns an error, and the shim keeps its socket and its containers.
func (r *Runtime) adoptShims(ctx context.Context) (map[string]adoptedContainer, error) {
	names, err := r.shims.listSockets()
	if err != nil {
		return nil, err
	}
	adopted, streams := map[string]adoptedContainer{}, map[string]*shim.Client{}
	for _, name := range names {
		r.shims.mu.Lock()
		g := r.shims.groups[name]
		if g == nil {
			g = &shimGroup{name: name, pods: map[string]bool{}}
			r.shims.groups[name] = g
		}
		r.shims.mu.Unlock()
		client, err := r.shims.connect(ctx, g)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isShimDead(err):
			os.Remove(r.shims.socketPath(name))
			continue
		case err != nil:
			return nil, fmt.Errorf("shim %s may be running: %w", name, err)
		}
		if pid := client.PID(); pid > 0 {
			if why := r.whyNoNewPods(pid); why != "" {
				r.log.Warn("the containers of a shim continue to run, and new pods get another shim",
					"shim", name, "pid", pid, "reason", why)
				r.shims.mu.Lock()
				g.noNewPods = true
				r.shims.mu.Unlock()
			}
		}
		callCtx, cancel := context.WithTimeout(ctx, listTimeout)
		list, err := client.List(callCtx)
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil { // the shim must not delay the recovery of other pods
			r.log.Error("a shim does not respond and is killed: its pods are started again", "shim", name, "error", err)
			client.Abandon()
			os.Remove(r.shims.socketPath(name))
			continue
		}
		for _, c := range list {
			if c.Held {
				streams[c.ID] = client
			} else {
				adopted[c.ID] = adoptedContainer{c, client}
			}
		}
	}
	if err := r.adoptTasks(ctx, adopted); err != nil {
		return nil, err
	}
	// End the streams of those containers that no containerd shim runs any more.
	callCtx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var calls sync.WaitGroup
	for id, client := range streams {
		if _, ok := adopted[id]; !ok {
			calls.Go(func() { client.LetGo(callCtx, id) })
		}
	}
	calls.Wait()
	return adopted, nil
}

// adoptContainers updates the records from the reports of the shims.
func (r *Runtime) adoptContainers(ctx context.Context, adopted map[string]adoptedContainer) {
	var g errgroup.Group
	g.SetLimit(8)
	for _, c := range r.containers {
		h, ok := adopted[c.rec.ID]
		switch {
		case c.state() == api.ContainerState_CONTAINER_EXITED:
			g.Go(func() error { r.lockAndCleanUp(c); return nil })
		case ok:
			r.recordStart(c, h.Running)
			if h.Exit != nil {
				r.handleEnd(c.rec.ID, h.Pid, *h.Exit)
			}
		default:
			g.Go(func() error { r.endUnreported(ctx, c); return nil })
		}
	}
	g.Wait()
}

func (r *Runtime) lockAndCleanUp(c *container) {
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.cleanUpEnded(c)
}

// adoptSandboxes determines which sandboxes are still usable.
func (r *Runtime) adoptSandboxes(adopted map[string]adoptedContainer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.sandboxes {
		if s.rec.Stopped {
			continue
		}
		// If a handler's sandbox has no program, an earlier version ran it with the default OCI
		// runtime.
		s.ready = (s.rec.Handler == "" || s.rec.Program != "") && !s.damaged && r.hasFiles(s)
		if s.hasInit() {
			if h, ok := adopted[id]; ok && h.Exit == nil && !s.initEnded && (s.endedPid == 0 || s.endedPid != h.Pid) {
				s.pid = h.Pid
			} else {
				s.ready = false
			}
		}
	}
}
