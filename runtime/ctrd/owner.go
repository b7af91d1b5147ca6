package ctrd

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/cri"
)

// A sandbox is owned by its creator, which is the agent or a tool at the CRI socket, such as
// crictl. Tools may list everything and may run exec, attach and port-forward everywhere, but they
// may stop, remove and change only the sandboxes of tools. Otherwise `crictl rmp -a -f` would
// remove the node's pods without the agent's knowledge. The agent may change everything, because it
// cleans up the node.

// checkOwner returns an error if a tool tries to change a sandbox of the agent.
func (r *Runtime) checkOwner(ctx context.Context, s *sandbox, verb string) error {
	if s == nil || s.rec.Tool || !cri.IsByTool(ctx) {
		return nil
	}
	m := s.config.GetMetadata()
	return fmt.Errorf("%s: pod %s/%s is managed by this node's agent: "+
		"delete or change the pod at its source (kubectl, islet, its manifest): %w",
		verb, m.GetNamespace(), m.GetName(), errdefs.ErrPermissionDenied)
}

// checkContainerOwner calls checkOwner for the sandbox of a container.
func (r *Runtime) checkContainerOwner(ctx context.Context, c *container, verb string) error {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	return r.checkOwner(ctx, s, verb)
}
