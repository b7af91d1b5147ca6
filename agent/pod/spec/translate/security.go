package translate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// maskedPaths returns paths of /proc and /sys that are hidden from a container, unless its procMount is Unmasked.
func maskedPaths(n Node) []string {
	return append([]string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats",
		"/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}, n.Throttles...)
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// securityContext merges the security contexts of the pod and the container. The container's fields override
// the pod's fields. It also checks runAsNonRoot against the image's user.
func securityContext(pod *v1.Pod, ctr *v1.Container, n Node, image *api.Image) (*api.LinuxContainerSecurityContext, error) {
	var psc v1.PodSecurityContext
	if pod.Spec.SecurityContext != nil {
		psc = *pod.Spec.SecurityContext
	}
	var sc v1.SecurityContext
	if ctr.SecurityContext != nil {
		sc = *ctr.SecurityContext
	}
	out := &api.LinuxContainerSecurityContext{
		NamespaceOptions: namespaceOptions(pod),
		Privileged:       podspec.IsTrue(sc.Privileged),
		ReadonlyRootfs:   podspec.IsTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		SelinuxOptions:   selinuxOptions(cmp.Or(sc.SELinuxOptions, psc.SELinuxOptions)),
		Seccomp:          seccompProfile(cmp.Or(sc.SeccompProfile, psc.SeccompProfile), n),
		Apparmor:         apparmorProfile(AppArmorProfile(pod, ctr)),
		RunAsUser:        int64Value(cmp.Or(sc.RunAsUser, psc.RunAsUser)),
		RunAsGroup:       int64Value(cmp.Or(sc.RunAsGroup, psc.RunAsGroup)),
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = supplementalGroups(pod)
	if out.RunAsUser == nil {
		out.RunAsUser, out.RunAsUsername = image.GetUid(), image.GetUsername()
	}
	if c := sc.Capabilities; c != nil {
		out.Capabilities = &api.Capability{AddCapabilities: capabilityNames(c.Add), DropCapabilities: capabilityNames(c.Drop)}
	}
	if !out.Privileged && (sc.ProcMount == nil || *sc.ProcMount == v1.DefaultProcMount) {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths(n), readonlyPaths()
	}
	if runAsNonRoot(pod, ctr) {
		return out, verifyNonRoot(out)
	}
	if out.RunAsGroup != nil && out.RunAsUser == nil && out.RunAsUsername == "" {
		// A runtime rejects a configuration that sets a group without a user. An image without a user runs as root.
		out.RunAsUser = &api.Int64Value{}
	}
	return out, nil
}

// runAsNonRoot reports whether a container must not run as root.
func runAsNonRoot(pod *v1.Pod, ctr *v1.Container) bool {
	var own, all *bool
	if ctr.SecurityContext != nil {
		own = ctr.SecurityContext.RunAsNonRoot
	}
	if pod.Spec.SecurityContext != nil {
		all = pod.Spec.SecurityContext.RunAsNonRoot
	}
	return podspec.IsTrue(cmp.Or(own, all))
}

// verifyNonRoot checks the configured user. If none is configured, it checks the image's user. The runtime checks the
// resulting user ID: see keys.RunAsNonRoot.
func verifyNonRoot(sc *api.LinuxContainerSecurityContext) error {
	switch {
	case sc.RunAsUser != nil && (sc.RunAsUser.Value < 0 || sc.RunAsUser.Value > math.MaxInt32):
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d): it must be from 1 to %d", sc.RunAsUser.Value,
			math.MaxInt32)
	case sc.RunAsUser != nil && sc.RunAsUser.Value == 0:
		return errors.New("container has runAsNonRoot, but its user (runAsUser, or the image's) is 0: set runAsUser to another one")
	case sc.RunAsUser == nil && sc.RunAsUsername != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root: set runAsUser",
			sc.RunAsUsername)
	case sc.RunAsUser == nil:
		return errors.New("container has runAsNonRoot and image will run as root: set runAsUser")
	}
	return nil
}

func capabilityNames(in []v1.Capability) []string {
	out := make([]string, len(in))
	for i, c := range in {
		out[i] = string(c)
	}
	return out
}

func supplementalGroups(pod *v1.Pod) (groups []int64, policy api.SupplementalGroupsPolicy) {
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return nil, policy
	}
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	groups = append(groups, sc.SupplementalGroups...)
	if p := sc.SupplementalGroupsPolicy; p != nil && *p == v1.SupplementalGroupsPolicyStrict {
		policy = api.SupplementalGroupsPolicy_Strict
	}
	return groups, policy
}

func selinuxOptions(o *v1.SELinuxOptions) *api.SELinuxOption {
	if o == nil {
		return nil
	}
	return &api.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func seccompProfile(p *v1.SeccompProfile, n Node) *api.SecurityProfile {
	switch {
	case p == nil && n.SeccompDefault, p != nil && p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
	case p != nil && p.Type == v1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(n.SeccompDir, *p.LocalhostProfile)}
	}
	return &api.SecurityProfile{ProfileType: api.SecurityProfile_Unconfined}
}

// AppArmorProfile returns the profile of a container. It comes from the container's field, from the deprecated
// annotation that static pods may still have, or from the pod's field, in this order. It returns nil if none of them
// is set.
func AppArmorProfile(pod *v1.Pod, ctr *v1.Container) *v1.AppArmorProfile {
	if sc := ctr.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile
	}
	switch old := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+ctr.Name]; {
	case old == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case old == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(old, v1.DeprecatedAppArmorBetaProfileNamePrefix):
		name := strings.TrimPrefix(old, v1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile
	}
	return nil
}

// apparmorProfile returns nil for a pod without a profile. The runtime's default then applies.
func apparmorProfile(p *v1.AppArmorProfile) *api.SecurityProfile {
	switch {
	case p == nil:
		return nil
	case p.Type == v1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
	case p.Type == v1.AppArmorProfileTypeUnconfined:
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_Unconfined}
	}
	return &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
}
