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

// initProgram is where the init of a pod that shares its process namespace finds
// the shim program, which plays it.
const initProgram = "/islet-shim"

// initScore is the oom_score_adj of that init, as of a kubelet's pause containers: its end
// would end the pod, and it has no memory worth that.
const initScore = -998

// startInit runs the first process of a pod's shared process namespace, or of the
// sandbox of a containerd shim. It has the sandbox's ID as its container's.
func (r *Runtime) startInit(ctx context.Context, s *sandbox) error {
	bundle := r.bundle(s.rec.ID)
	if err := errors.Join(r.makeBundle(s, s.rec.ID), os.MkdirAll(filepath.Join(bundle, rootfs), 0o755), s.give(filepath.Join(bundle, rootfs))); err != nil {
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
	client, err := r.runner(ctx, s)
	if err != nil {
		return err
	}
	running, err := client.Run(context.WithoutCancel(ctx), wire.RunRequest{ID: s.rec.ID, Bundle: bundle, OCI: s.oci, Cgroup: r.cgroupDir(s, s.rec.ID)})
	if err != nil {
		return err
	}
	r.mu.Lock()
	s.pid = running.Pid
	over := s.over
	r.mu.Unlock()
	if over {
		return errors.New("it has ended at once")
	}
	return nil
}

// initSpec is a container with nothing but the shim program in it, which may do
// nothing: whatever runs in the pod shares its process namespace with it.
func (r *Runtime) initSpec(s *sandbox) (*specs.Spec, error) {
	n, err := r.namespacesOf(s, &container{config: &api.ContainerConfig{}})
	if err != nil {
		return nil, err
	}
	spec, err := ocispec.Own(ocispec.Input{
		Sandbox: s.config, Namespaces: n, Host: r.host, CgroupsPath: r.cgroupsPath(s, s.rec.ID),
		Container: r.ownContainer("init"),
	})
	if err == nil && s.tasks != nil {
		s.describe(spec, nil)
	}
	return spec, err
}

// ownContainer runs the shim program as something else than a shim.
func (r *Runtime) ownContainer(verb string) *api.ContainerConfig {
	return &api.ContainerConfig{
		Command: []string{initProgram, verb},
		Mounts:  []*api.Mount{{ContainerPath: initProgram, HostPath: r.c.ShimPath, Readonly: true}},
		Linux:   &api.LinuxContainerConfig{Resources: &api.LinuxContainerResources{CpuShares: 2, OomScoreAdj: initScore}},
	}
}

// stopInit ends the init, and with it whatever is left in its process namespace.
func (r *Runtime) stopInit(ctx context.Context, s *sandbox) error {
	r.mu.Lock()
	s.pid = 0
	r.mu.Unlock()
	client := r.connected(s)
	if _, err := os.Stat(r.bundle(s.rec.ID)); errors.Is(err, os.ErrNotExist) {
		_, err := r.endLeft(ctx, s, s.rec.ID)
		if client != nil && err == nil {
			client.DeleteEnded(ctx, s.rec.ID) // it need not know the init
		}
		return err
	}
	if client != nil {
		err := client.Kill(ctx, wire.KillRequest{ID: s.rec.ID, Signal: int(unix.SIGKILL)})
		if err == nil {
			err = client.DeleteEnded(ctx, s.rec.ID)
		}
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
			return fmt.Errorf("end the pod's init process: %w", err)
		}
		if err == nil {
			return r.removeBundle(s.rec.ID)
		}
	}
	deleted := r.forceDelete(ctx, s, s.rec.ID)
	if _, err := r.endLeft(ctx, s, s.rec.ID); err != nil || deleted != nil {
		return errors.Join(deleted, err)
	}
	return r.removeBundle(s.rec.ID)
}

// initEnded makes a sandbox not ready whose process namespace has lost its init.
func (r *Runtime) initEnded(s *sandbox) {
	r.mu.Lock()
	was := s.ready && s.pid > 0
	s.over = true
	if was {
		s.ready, s.pid = false, 0
	}
	r.mu.Unlock()
	if was {
		r.notify(s.rec.ID, s.rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}
