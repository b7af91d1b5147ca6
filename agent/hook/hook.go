// Package hook holds the small interfaces by which a feature joins a pod's life.
// Package agent lists the features in one explicit ordered slice, a Chain; the
// worker calls them. A feature implements Named and the abilities it needs; it
// need not import this package, for the interfaces use only Kubernetes' types.
//
//	admitted --> Prepare --> Sandbox --> run sandbox --> Container --> create, start ... --> sandbox removed --> Release
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
// cgroups) before its sandbox and before each container. It is called again
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

// A Releaser undoes Prepare once nothing of the pod is left in the runtime. It
// knows only the UID, since the pod may be known no longer, and may be called
// for a pod that was never prepared.
type Releaser interface {
	Release(ctx context.Context, uid types.UID) error
}

// A Chain is called in order; Release in reverse order.
type Chain []Named
