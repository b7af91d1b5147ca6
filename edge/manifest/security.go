package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/podspec"
)

func isPrivileged(c *v1.Container) bool {
	return c.SecurityContext != nil && podspec.IsTrue(c.SecurityContext.Privileged)
}

// checkSecurity checks the security context of a container. Privileged containers are permitted, because a user who can write manifests
// for a node already has root's permissions there.
func (r *review) checkSecurity(p *field.Path, sc *v1.SecurityContext) {
	if sc == nil {
		return
	}
	r.checkUser(p.Child("runAsUser"), sc.RunAsUser)
	r.checkGroup(p.Child("runAsGroup"), sc.RunAsGroup)
	oneOfIf(r, p.Child("procMount"), sc.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	hostUsers := r.spec.HostUsers == nil || *r.spec.HostUsers
	r.failIf(hostUsers && sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount, p.Child("procMount"), v1.UnmaskedProcMount,
		"needs hostUsers: false")
	r.checkSeccomp(p.Child("seccompProfile"), sc.SeccompProfile)
	r.appArmor(p.Child("appArmorProfile"), sc.AppArmorProfile)
	r.windowsOptions(p.Child("windowsOptions"), sc.WindowsOptions)
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return
	}
	at := p.Child("allowPrivilegeEscalation")
	r.failIf(podspec.IsTrue(sc.Privileged), at, false, "must not be false for a privileged container")
	r.failIf(sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN"), at, false,
		"must not be false for a container with CAP_SYS_ADMIN")
}

// podSecurity checks the security context of a pod.
func (r *review) podSecurity(p *field.Path) {
	sc := r.spec.SecurityContext
	if r.spec.HostPID && podspec.IsTrue(r.spec.ShareProcessNamespace) {
		r.addInvalid(field.NewPath("spec", "shareProcessNamespace"), true, "must not be set together with hostPID")
	}
	if sc == nil {
		return
	}
	r.checkUser(p.Child("runAsUser"), sc.RunAsUser)
	r.checkGroup(p.Child("runAsGroup"), sc.RunAsGroup)
	r.checkGroup(p.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		r.checkGroup(p.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	oneOfIf(r, p.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch)
	oneOfIf(r, p.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy,
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	oneOfIf(r, p.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy, v1.SELinuxChangePolicyRecursive,
		v1.SELinuxChangePolicyMountOption)
	r.checkSeccomp(p.Child("seccompProfile"), sc.SeccompProfile)
	r.appArmor(p.Child("appArmorProfile"), sc.AppArmorProfile)
	r.windowsOptions(p.Child("windowsOptions"), sc.WindowsOptions)
	r.checkSysctls(p.Child("sysctls"), sc.Sysctls)
}

func (r *review) checkUser(p *field.Path, id *int64) {
	if id != nil {
		for _, msg := range validation.IsValidUserID(*id) {
			r.addInvalid(p, *id, msg)
		}
	}
}

func (r *review) checkGroup(p *field.Path, id *int64) {
	if id != nil {
		for _, msg := range validation.IsValidGroupID(*id) {
			r.addInvalid(p, *id, msg)
		}
	}
}

func (r *review) checkSeccomp(p *field.Path, profile *v1.SeccompProfile) {
	if profile == nil {
		return
	}
	oneOf(r, p.Child("type"), profile.Type,
		v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)
	at := p.Child("localhostProfile")
	switch file, local := profile.LocalhostProfile, profile.Type == v1.SeccompProfileTypeLocalhost; {
	case local && file == nil:
		r.rejectMissing(at, "type Localhost needs it")
	case local:
		r.checkDescending(at, *file)
	case file != nil:
		r.addInvalid(at, *file, "is only valid with type Localhost")
	}
}

func (r *review) appArmor(p *field.Path, profile *v1.AppArmorProfile) {
	if profile == nil {
		return
	}
	oneOf(r, p.Child("type"), profile.Type,
		v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	const longest = 4095 // PATH_MAX without the terminating null byte
	at := p.Child("localhostProfile")
	switch name, local := profile.LocalhostProfile, profile.Type == v1.AppArmorProfileTypeLocalhost; {
	case local && (name == nil || *name == ""):
		r.rejectMissing(at, "type Localhost needs it")
	case local:
		r.failIf(strings.TrimSpace(*name) != *name, at, *name, "must not have leading or trailing white space")
		if len(*name) > longest {
			r.errs = append(r.errs, field.TooLong(at, "", longest))
		}
	case name != nil && profile.Type != "":
		r.addInvalid(at, *name, "is only valid with type Localhost")
	}
}

// sysctlName matches the name of a sysctl, whose elements are separated by dots or slashes.
var sysctlName = pattern.New(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (r *review) checkSysctls(p *field.Path, list []v1.Sysctl) {
	const longest = 253
	seen := map[string]bool{}
	for i, s := range list {
		at := p.Index(i).Child("name")
		if !r.requireText(at, s.Name) {
			continue
		}
		r.failIf(len(s.Name) > longest || !sysctlName().MatchString(s.Name), at, s.Name,
			fmt.Sprintf("must have at most %d characters: a-z, 0-9, - and _, with dots or slashes between them", longest))
		r.addUnique(at, seen, s.Name)
		switch namespace, _, _ := sysctl.GetNamespace(s.Name); {
		case r.spec.HostNetwork && namespace == sysctl.NetNamespace:
			r.addInvalid(at, s.Name, "must not be set together with hostNetwork")
		case r.spec.HostIPC && namespace == sysctl.IPCNamespace:
			r.addInvalid(at, s.Name, "must not be set together with hostIPC")
		}
	}
}
