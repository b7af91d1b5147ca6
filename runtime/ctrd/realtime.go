package ctrd

import (
	"fmt"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/realtime"
)

// schedulingNeeds returns the annotation of a container that needs process.scheduler or process.ioPriority of its OCI runtime, or "".
func schedulingNeeds(cfg *api.ContainerConfig) string {
	for _, key := range []string{keys.ContainerScheduler, keys.ContainerIOPriority} {
		if v := cfg.GetAnnotations()[key]; v != "" {
			return key + "=" + v
		}
	}
	return ""
}

// checkScheduling returns an error if a container's OCI runtime would ignore the container's scheduling policy or I/O priority.
func (r *Runtime) checkScheduling(s *sandbox, cfg *api.ContainerConfig) error {
	if _, err := realtime.Read(cfg.GetAnnotations()); err != nil {
		return err
	}
	needs := schedulingNeeds(cfg)
	switch {
	case needs == "":
		return nil
	case s.tasks != nil:
		return fmt.Errorf("%s: a containerd shim may ignore it: use a runtimeClassName whose handler is an OCI runtime: %w", needs,
			errdefs.ErrNotImplemented)
	case !r.abilities.Get(s.oci.Path).Scheduling:
		return fmt.Errorf("%s: the OCI runtime %s does not support it: use crun 1.9 or runc 1.2 or later (ociRuntime of the "+
			"EdgeConfiguration), and Linux 5.12 or later: %w", needs, s.oci.Path, errdefs.ErrNotImplemented)
	}
	return nil
}

// schedulingHint returns a suffix for the error of a failed start. It is empty unless the kernel may have refused the container's
// scheduling policy. The error of the OCI runtime names only the system call.
func (c *container) schedulingHint() string {
	if needs := schedulingNeeds(c.config); needs != "" {
		return fmt.Sprintf(" (it has %s, which realTime of the EdgeConfiguration allows; islet doctor names what the kernel lacks)", needs)
	}
	return ""
}
