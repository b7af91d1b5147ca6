package ocispec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nobody is the UID of islet's own containers. Pause containers of other runtimes have the same
// UID.
const nobody = 65535

// ownOOMScore protects a container on which its whole pod depends. Every CRI runtime uses the same
// value for pause containers.
const ownOOMScore = -998

// Own returns the specification of a container that islet itself runs for a pod. Such a container
// has no privileges, and everything that it sees is read-only or masked, because the pod's
// processes may be able to access it, and through /proc its root file system. Own changes in: it
// sets the user, and the container's security context and OOM score.
func Own(in Input) (*specs.Spec, error) {
	id := uint32(nobody)
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
	l.Resources.OomScoreAdj = ownOOMScore
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
	return Make(in)
}
