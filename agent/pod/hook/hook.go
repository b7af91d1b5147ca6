package hook

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Named is what every hook is. The name appears in errors and logs.
type Named interface{ Name() string }

// A Preparer makes what the pod needs on the host (directories, mounts,
// cgroups), or waits for what it uses, before its sandbox and before each container. It is called again
// after a failure, a restart of the agent and for each container, so a second
// call must be success and cheap.
type Preparer interface {
	Prepare(ctx context.Context, pod *v1.Pod) error
}

// A SandboxHook adds to the sandbox's configuration.
type SandboxHook interface {
	Sandbox(ctx context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error
}

// A ContainerHook adds mounts, devices, environment or annotations to a
// container's configuration. It is called for each attempt.
type ContainerHook interface {
	Container(ctx context.Context, pod *v1.Pod, c *v1.Container, out *api.ContainerConfig) error
}

// A Starter is asked before each start of a container, after Prepare: it may keep the
// container from starting, and may wait as Prepare does. What it does need not be undone.
type Starter interface {
	Start(ctx context.Context, pod *v1.Pod, c *v1.Container) error
}

// An Updater follows a change of a pod's spec in place: an image, resources, an
// ephemeral container (KEP-1287, KEP-277). It is called while the pod has a sandbox,
// once for each spec, and once more if the agent restarted since; so a second call
// must be success and cheap.
type Updater interface {
	Update(ctx context.Context, pod *v1.Pod) error
}

// A Sizer holds a pod as a whole to its resources. When those change while it runs
// (KEP-1287) Grow comes first: it raises what is to be more, so that containers may get
// more; Shrink lowers what is to be less, once they have less. A second call must be
// success and cheap.
type Sizer interface {
	Grow(ctx context.Context, pod *v1.Pod) error
	Shrink(ctx context.Context, pod *v1.Pod) error
}

// An Ender gives back what a pod needs only while something of it runs: devices,
// volumes, CPUs. It is called for a pod that is still wanted but over (it ran to its
// end, was evicted, refused, or active for too long), once nothing of it runs; and
// again after a restart of the agent. A pod that is deleted while it runs is released
// without it. If the pod is to run after all, Prepare comes anew.
type Ender interface {
	Ended(ctx context.Context, pod *v1.Pod) error
}

// A Releaser undoes Prepare once nothing of the pod is left in the runtime. It
// knows only the UID, since the pod may be known no longer, and may be called
// for a pod that was never prepared, and more than once.
type Releaser interface {
	Release(ctx context.Context, uid types.UID) error
}

// A Chain is called in order; Ended and Release in reverse order.
type Chain []Named
