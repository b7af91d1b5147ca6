package rebuild

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// keepEnvironments stores the environments of the running containers. It reads them from the OCI
// specifications that the runtime returns. A specification may contain values of Secrets. Therefore islet's
// own runtime removes it when the container ends, and keeps no specification after a reboot.
func keepEnvironments(ctx context.Context, c Config, made []*api.Container) {
	if c.Environments == nil {
		return
	}
	for _, ctr := range made {
		if ctr.State != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		st, err := c.Runtime.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: ctr.Id, Verbose: true})
		var info struct {
			RuntimeSpec struct{ Process struct{ Env []string } }
		}
		if err == nil {
			err = json.Unmarshal([]byte(st.Info["info"]), &info)
		}
		if err != nil {
			c.Log.Warn("cannot read the environment of a container: if the container ends, it starts again only with the API server",
				"container", ctr.Id, "error", err)
			continue
		}
		c.Environments.KeepEnvironment(types.UID(ctr.Labels[keys.PodUID]), ctr.Metadata.GetName(), info.RuntimeSpec.Process.Env)
	}
}
