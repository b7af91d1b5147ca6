package ctrd

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/cri"
)

// Who made a sandbox owns it: the agent, or the tools at the CRI socket, such as
// crictl. Tools may look at everything and run commands and streams everywhere, but
// stop, remove and change only what is theirs: `crictl rmp -a -f` on a node would else
// take the pods with it that the node is there for, behind the agent's back. The agent
// may do everything, for it cleans up.

// guard refuses a tool's change of what is the agent's.
func (r *Runtime) guard(ctx context.Context, s *sandbox, verb string) error {
	if s == nil || s.rec.Tool || !cri.IsByTool(ctx) {
		return nil
	}
	m := s.config.GetMetadata()
	return fmt.Errorf("%s: pod %s/%s is run by this node's agent, which decides about it: delete or change the pod where it came from (kubectl, islet, its manifest): %w",
		verb, m.GetNamespace(), m.GetName(), errdefs.ErrPermissionDenied)
}

// guardContainer is guard for a container.
func (r *Runtime) guardContainer(ctx context.Context, c *container, verb string) error {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	return r.guard(ctx, s, verb)
}
