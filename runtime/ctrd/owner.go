package ctrd

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/cri"
)

// A sandbox is owned by its creator: the agent, or the tools at the CRI socket, such as crictl.
// Tools may list everything and run exec, attach and port-forward everywhere, but may stop, remove
// and change only their own sandboxes. Otherwise `crictl rmp -a -f` would remove the node's pods
// without the agent's knowledge. The agent may change everything, because it cleans up.

// checkOwner rejects a tool's change to a sandbox of the agent.
func (r *Runtime) checkOwner(ctx context.Context, s *sandbox, verb string) error {
	if s == nil || s.rec.Tool || !cri.IsByTool(ctx) {
		return nil
	}
	m := s.config.GetMetadata()
	return fmt.Errorf("%s: pod %s/%s is managed by this node's agent: "+
		"delete or change the pod at its source (kubectl, islet, its manifest): %w",
		verb, m.GetNamespace(), m.GetName(), errdefs.ErrPermissionDenied)
}

// checkContainerOwner is checkOwner for a container.
func (r *Runtime) checkContainerOwner(ctx context.Context, c *container, verb string) error {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	return r.checkOwner(ctx, s, verb)
}
