package hook

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Named is implemented by every hook. The name appears in errors and logs.
type Named interface{ Name() string }

// A Preparer creates what the pod needs on the host (directories, mounts, cgroups), or waits for resources that the
// pod uses. It is called before the pod's sandbox and before each container. It is also called again after a failure
// and after a restart of the agent, so a repeated call must be cheap and succeed.
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

// A Starter is called before each start of a container, after Prepare. An error keeps the container from starting.
// Like Prepare, it may wait. No hook undoes its effect.
type Starter interface {
	Start(ctx context.Context, pod *v1.Pod, c *v1.Container) error
}

// An Updater applies an in-place change of a pod's spec: an image, resources, an ephemeral container (KEP-1287,
// KEP-277). It is called while the pod has a sandbox: once for each spec, and once more if the agent has restarted
// since. So a repeated call must be cheap and succeed.
type Updater interface {
	Update(ctx context.Context, pod *v1.Pod) error
}

// A Sizer applies the resource limits of a pod as a whole. When they change while the pod runs (KEP-1287), Grow is
// called first: it raises limits, so that containers can be raised too. Shrink is called last: it lowers limits,
// after the containers have been lowered. A repeated call must be cheap and succeed.
type Sizer interface {
	Grow(ctx context.Context, pod *v1.Pod) error
	Shrink(ctx context.Context, pod *v1.Pod) error
}

// An Ender releases the resources that a pod needs only while it runs: devices, volumes, CPUs. It is called
// for a pod that has ended but is still desired, once nothing of it runs: the pod completed, or was evicted, rejected,
// or active for too long. It is called again after a restart of the agent. It is not called for a pod that is deleted
// while it runs. If the pod is to run after all, Prepare is called again.
type Ender interface {
	Ended(ctx context.Context, pod *v1.Pod) error
}

// A Releaser undoes Prepare when the runtime has nothing of the pod left. It gets only the UID, because the pod
// object may no longer be known. It may be called for a pod that was never prepared, and more than once.
type Releaser interface {
	Release(ctx context.Context, uid types.UID) error
}

// A Chain calls its hooks in order, but Ended and Release in reverse order.
type Chain []Named
