package rebuild

import (
	"context"
	"encoding/json"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keys"
)

// SandboxVersions reads the versions of pods from which their sandboxes were created. If a wanted pod changed
// just before the agent ended, only the sandbox contains the former version.
type SandboxVersions struct {
	Runtime interface {
		PodSandboxStatus(context.Context, *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error)
	}
	View interface {
		Pod(types.UID) plan.Observed
	}
	Log *slog.Logger
}

// Pod returns the version of a pod from which the pod's newest sandbox was created. It returns nil if that
// version has the same spec as the wanted pod, or if it is unknown.
func (m SandboxVersions) Pod(wanted *v1.Pod) *v1.Pod {
	sb, ok := m.View.Pod(wanted.UID).Sandbox()
	if !ok || sb.Hash == "" || sb.Hash == plan.SpecHash(&wanted.Spec) {
		return nil
	}
	st, err := m.Runtime.PodSandboxStatus(context.Background(), &api.PodSandboxStatusRequest{PodSandboxId: sb.ID})
	if err != nil {
		m.Log.Warn("cannot read the sandbox of a pod, so its former spec is unknown",
			"pod", wanted.Namespace+"/"+wanted.Name, "uid", wanted.UID, "error", err)
		return nil
	}
	text := st.GetStatus().GetAnnotations()[keys.Manifest]
	pod := &v1.Pod{}
	if err := json.Unmarshal([]byte(text), pod); err != nil || pod.UID != wanted.UID {
		m.Log.Warn("cannot parse the manifest in a pod's sandbox",
			"pod", wanted.Namespace+"/"+wanted.Name, "uid", wanted.UID, "error", err)
		return nil
	}
	return pod
}
