package hook

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Named is implemented by every hook. Errors and logs contain the name.
type Named interface{ Name() string }

// A Preparer creates what the pod needs on the host (directories, mounts, cgroups), or waits for resources that the pod
// uses. Prepare is called before the start of the pod's sandbox, and before the start of each container. It is called
// again after a failure and after a restart of the agent, so a repeated call must be cheap and succeed.
type Preparer interface {
	Prepare(ctx context.Context, pod *v1.Pod) error
}

// A SandboxHook changes the configuration of the sandbox.
type SandboxHook interface {
	Sandbox(ctx context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error
}

// A ContainerHook adds mounts, devices, environment variables or annotations to a container's configuration. It is
// called for each attempt to start a container.
type ContainerHook interface {
	Container(ctx context.Context, pod *v1.Pod, c *v1.Container, out *api.ContainerConfig) error
}

// A Starter is called before each start of a container, after Prepare. If it returns an error, the container
// does not start. Like Prepare, it may wait. No other hook undoes the effect of Start.
type Starter interface {
	Start(ctx context.Context, pod *v1.Pod, c *v1.Container) error
}

// An Updater applies an in-place change of a pod's spec: an image, resources, an ephemeral container
// (KEP-1287, KEP-277). Update is called while the pod has a sandbox, once for each version of the spec. After
// a restart of the agent it may be called again, so a repeated call must be cheap and succeed.
type Updater interface {
	Update(ctx context.Context, pod *v1.Pod) error
}

// A Sizer applies the resource limits of a pod as a whole. When the limits change while the pod runs
// (KEP-1287), Grow is called before the containers are resized. Grow raises the limits of the pod, so that
// the limits of the containers can be raised. Shrink is called after the containers are resized, and lowers
// the limits of the pod. A repeated call must be cheap and succeed.
type Sizer interface {
	Grow(ctx context.Context, pod *v1.Pod) error
	Shrink(ctx context.Context, pod *v1.Pod) error
}

// An Ender releases the resources that a pod needs only while it runs: devices, volumes, CPUs. Ended is
// called for a pod that is not running but is still desired, after all its containers and sandboxes have
// stopped. Such a pod has completed, or it was evicted, rejected, or active for too long. It is called again
// after a restart of the agent. It is not called for a pod that is deleted while it runs. If the pod must run
// again, Prepare is called again.
type Ender interface {
	Ended(ctx context.Context, pod *v1.Pod) error
}

// An Unmounter unmounts volumes that need a server or the program of a driver. Unmount is called when the machine shuts down and the pod
// does not run any more. The pod keeps its files and records, because it runs again after the next boot. If it must run again earlier,
// Prepare is called again.
type Unmounter interface {
	Unmount(ctx context.Context, uid types.UID) error
}

// A Releaser undoes Prepare after the runtime has removed all sandboxes and containers of the pod. It is called with
// only the UID, because the pod object may no longer be known. It may be called for a pod that was never prepared,
// and more than once.
type Releaser interface {
	Release(ctx context.Context, uid types.UID) error
}

// A Chain calls its hooks in order. It calls Ended, Unmount and Release in reverse order.
type Chain []Named
