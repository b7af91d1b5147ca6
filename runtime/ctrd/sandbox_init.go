package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ocispec"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// initProgram is the path of the shim program inside the init container of a pod with a shared PID
// namespace. The shim program acts as the init.
const initProgram = "/islet-shim"

// initScore is the oom_score_adj of the init, the same as for a kubelet's pause containers. If the
// OOM killer chose it, the pod would end, but almost no memory would be freed.
const initScore = -998

// errInitEnded is returned if the init process ended while its sandbox was being started.
var errInitEnded = errors.New("it ended immediately")

// startInit starts the first process of a pod's shared PID namespace, or of the sandbox of a
// containerd shim. The ID of its container equals the sandbox's ID.
func (r *Runtime) startInit(ctx context.Context, s *sandbox) error {
	bundle := r.bundlePath(s.rec.ID)
	err := errors.Join(r.makeBundle(s, s.rec.ID), os.MkdirAll(filepath.Join(bundle, rootfsDir), 0o755),
		s.chown(filepath.Join(bundle, rootfsDir)))
	if err != nil {
		return err
	}
	spec, err := r.initSpec(s)
	if err != nil {
		return err
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600); err != nil {
		return err
	}
	if s.tasks != nil {
		if err := s.tasks.Start(ctx); err != nil {
			return err
		}
	}
	client, err := r.startRunner(ctx, s)
	if err != nil {
		return err
	}
	req := wire.RunRequest{ID: s.rec.ID, Bundle: bundle, OCI: s.oci, Cgroup: r.cgroupDir(s, s.rec.ID), Plain: isPlain(spec)}
	r.mu.Lock()
	s.initBegun = true
	r.mu.Unlock()
	running, err := client.Run(context.WithoutCancel(ctx), req)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.initEnded || s.endedPid > 0 && s.endedPid == running.Pid {
		return errInitEnded
	}
	s.pid = running.Pid
	return nil
}

// initSpec returns the specification of a container with nothing but the shim program. It has no
// privileges, because every process of the pod shares its PID namespace.
func (r *Runtime) initSpec(s *sandbox) (*specs.Spec, error) {
	n, err := r.namespacesOf(s, &container{config: &api.ContainerConfig{}})
	if err != nil {
		return nil, err
	}
	spec, err := ocispec.NewPauseSpec(ocispec.Input{
		Sandbox: s.config, Namespaces: n, Host: r.host, CgroupsPath: r.cgroupsPath(s, s.rec.ID),
		Container: r.ownContainer("init"),
	})
	if err == nil && s.tasks != nil {
		s.addAnnotations(spec, nil)
	}
	return spec, err
}

// ownContainer returns the configuration of a container that runs the shim program with a verb.
func (r *Runtime) ownContainer(verb string) *api.ContainerConfig {
	return &api.ContainerConfig{
		Command: []string{initProgram, verb},
		Mounts:  []*api.Mount{{ContainerPath: initProgram, HostPath: r.c.ShimPath, Readonly: true}},
		Linux:   &api.LinuxContainerConfig{Resources: &api.LinuxContainerResources{CpuShares: 2, OomScoreAdj: initScore}},
	}
}

// stopInit kills the init. The kernel then kills every process that is left in its PID namespace.
func (r *Runtime) stopInit(ctx context.Context, s *sandbox) error {
	r.mu.Lock()
	s.pid = 0
	r.mu.Unlock()
	client := r.connectedRunner(s)
	if _, err := os.Stat(r.bundlePath(s.rec.ID)); errors.Is(err, os.ErrNotExist) {
		_, err := r.killRemaining(ctx, s, s.rec.ID)
		if client != nil && err == nil {
			client.DeleteEnded(ctx, s.rec.ID) // fails if the shim does not have it
		}
		return err
	}
	if client != nil {
		err := client.Kill(ctx, wire.KillRequest{ID: s.rec.ID, Signal: int(unix.SIGKILL)})
		if err == nil {
			err = client.DeleteEnded(ctx, s.rec.ID)
		}
		if err != nil && s.lacksProgram() {
			err = r.deleteWithoutProgram(ctx, s, s.rec.ID, client.DeleteEnded)
		}
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
			return fmt.Errorf("kill the pod's init process: %w", err)
		}
		if err == nil {
			return r.removeBundle(s.rec.ID)
		}
	}
	deleted := r.forceDelete(ctx, s, s.rec.ID)
	if _, err := r.killRemaining(ctx, s, s.rec.ID); err != nil || deleted != nil {
		return errors.Join(deleted, err)
	}
	return r.removeBundle(s.rec.ID)
}

// handleInitExit handles a shim's report that an init process has ended. The report may be about the init of an earlier sandbox with the
// same ID, because a shim sends it after other programs can see the end. Only the PID distinguishes the two.
func (r *Runtime) handleInitExit(s *sandbox, pid int) {
	r.mu.Lock()
	own := pid <= 0 || pid == s.pid
	if !own && s.pid == 0 {
		s.endedPid = pid
	}
	r.mu.Unlock()
	if own {
		r.handleInitEnd(s)
	}
}

// handleInitEnd makes a sandbox not ready when the init of its PID namespace has ended. If RunPodSandbox is still starting the sandbox,
// addSandbox does this.
func (r *Runtime) handleInitEnd(s *sandbox) {
	r.mu.Lock()
	wasReady := r.sandboxes[s.rec.ID] == s && s.ready && s.pid > 0
	s.initEnded = true
	if wasReady {
		s.ready, s.pid = false, 0
	}
	r.mu.Unlock()
	if wasReady {
		r.notifySubscribers(s.rec.ID, s.rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}
