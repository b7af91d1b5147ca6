package ctrd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/namespace"
)

// StopPodSandbox kills the containers of a sandbox and removes its network and namespaces. It
// returns no error if the sandbox does not exist or is already stopped.
func (r *Runtime) StopPodSandbox(ctx context.Context, req *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return &api.StopPodSandboxResponse{}, ignoreNotFound(err)
	}
	if err := r.checkOwner(ctx, s, "stop sandbox"); err != nil {
		return nil, err
	}
	if err := r.ops.LockContext(ctx, s.rec.ID); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(s.rec.ID)
	if err := r.stopSandbox(ctx, s); err != nil {
		return nil, err
	}
	return &api.StopPodSandboxResponse{}, nil
}

// stopSandbox stops a sandbox. It records the stop first, so that a later process does not take
// over a partly removed sandbox. It does nothing if this process has stopped the sandbox completely: the removal of a pod stops its sandbox
// three times. The caller holds the sandbox's lock.
func (r *Runtime) stopSandbox(ctx context.Context, s *sandbox) error {
	if s.tornDown {
		return nil
	}
	r.mu.Lock()
	wasReady, recorded := s.ready, s.rec.Stopped
	s.ready, s.rec.Stopped = false, true
	r.mu.Unlock()
	if !recorded {
		if err := appendRecord(r.sandboxPath(s.rec.ID), map[string]bool{"stopped": true}, false); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", s.rec.ID, err)
		}
	}
	for _, c := range r.containersOf(s.rec.ID) {
		if err := r.stopContainer(ctx, c, 0); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", s.rec.ID, err)
		}
	}
	if err := r.tearDown(ctx, s); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", s.rec.ID, err)
	}
	s.tornDown = true
	if wasReady {
		r.notifySubscribers(s.rec.ID, s.rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// tearDown reverts runSandbox, except for the record. Repeated calls are permitted.
func (r *Runtime) tearDown(ctx context.Context, s *sandbox) error {
	var errs []error
	if s.hasInit() {
		errs = append(errs, r.stopInit(ctx, s), r.endTasks(ctx, s))
	}
	if !s.hostNetwork() {
		if err := r.c.Network.Teardown(ctx, s.rec.ID, r.netnsPath(s), proto.CloneOf(s.config)); err != nil {
			errs = append(errs, fmt.Errorf("tear down network: %w", err))
		}
	}
	errs = append(errs,
		namespace.Unpin(filepath.Join(r.dirs.pins, s.rec.ID)),
		r.removeSandboxFiles(s.rec.ID),
	)
	return errors.Join(errs...)
}
