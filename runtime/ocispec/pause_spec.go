package ocispec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nobodyID is the UID and GID of the containers of NewPauseSpec. The pause image uses the same UID.
const nobodyID = 65535

// pauseOOMScore is the OOM score adjustment of the containers of NewPauseSpec, on which their pods depend.
// CRI runtimes use the same value for pause containers.
const pauseOOMScore = -998

// NewPauseSpec returns the specification of a container that islet runs for a pod, like a pause container.
// Processes of the pod may access this container, for example its root file system through /proc.
// Therefore it has no privileges and a read-only root file system, and sensitive paths are masked.
// NewPauseSpec overwrites the user, the security context and the OOM score adjustment of its Input.
func NewPauseSpec(in Input) (*specs.Spec, error) {
	id := uint32(nobodyID)
	if in.Users != "" {
		id = min(id, in.UIDs-1)
	}
	in.User = specs.User{UID: id, GID: id, AdditionalGids: []uint32{id}}
	l := in.Container.GetLinux()
	if l == nil {
		l = &api.LinuxContainerConfig{}
		in.Container.Linux = l
	}
	if l.Resources == nil {
		l.Resources = &api.LinuxContainerResources{}
	}
	l.Resources.OomScoreAdj = pauseOOMScore
	l.SecurityContext = &api.LinuxContainerSecurityContext{
		Capabilities:   &api.Capability{DropCapabilities: []string{"ALL"}},
		ReadonlyRootfs: true,
		NoNewPrivs:     true,
		Seccomp:        &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault},
		MaskedPaths: append([]string{
			"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
			"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
		}, in.Throttles...),
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	}
	return NewSpec(in)
}
