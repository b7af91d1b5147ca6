package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/podspec"
)

const notForWindows = "has no meaning on Windows"

// checkSystem checks the fields that depend on spec.os, and the fields for Windows. Windows pods do not run here, but their manifests are
// validated.
func (r *review) checkSystem(p *field.Path) {
	r.hostProcess(p)
	if r.spec.OS == nil {
		return
	}
	oneOf(r, p.Child("os", "name"), r.spec.OS.Name, v1.Linux, v1.Windows)
	switch r.spec.OS.Name {
	case v1.Linux:
		const detail = "has no meaning on Linux"
		if sc := r.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
			r.addForbidden(p.Child("securityContext", "windowsOptions"), detail)
		}
		eachContainer(r.spec, func(p *field.Path, c *v1.Container) {
			if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
				r.addForbidden(p.Child("securityContext", "windowsOptions"), detail)
			}
		})
	case v1.Windows:
		r.onlyLinux(p)
	}
}

// A namedField is an optional field, with its name.
type namedField struct {
	set  bool
	name string
}

func (r *review) forbidAll(p *field.Path, settings []namedField) {
	for _, s := range settings {
		if s.set {
			r.addForbidden(p.Child(s.name), notForWindows)
		}
	}
}

// onlyLinux rejects fields that a Windows pod cannot have.
func (r *review) onlyLinux(p *field.Path) {
	s := r.spec
	r.forbidAll(p, []namedField{{s.HostUsers != nil, "hostUsers"}, {s.HostPID, "hostPID"}, {s.HostIPC, "hostIPC"},
		{s.ShareProcessNamespace != nil, "shareProcessNamespace"}})
	if sc := s.SecurityContext; sc != nil {
		r.forbidAll(p.Child("securityContext"), []namedField{
			{sc.AppArmorProfile != nil, "appArmorProfile"}, {sc.SELinuxOptions != nil, "seLinuxOptions"},
			{sc.SeccompProfile != nil, "seccompProfile"}, {sc.FSGroup != nil, "fsGroup"},
			{sc.FSGroupChangePolicy != nil, "fsGroupChangePolicy"}, {len(sc.Sysctls) > 0, "sysctls"},
			{sc.RunAsUser != nil, "runAsUser"}, {sc.RunAsGroup != nil, "runAsGroup"},
			{sc.SupplementalGroups != nil, "supplementalGroups"}, {sc.SupplementalGroupsPolicy != nil, "supplementalGroupsPolicy"},
			{sc.SELinuxChangePolicy != nil, "seLinuxChangePolicy"},
		})
	}
	eachContainer(s, func(p *field.Path, c *v1.Container) {
		if sc := c.SecurityContext; sc != nil {
			r.forbidAll(p.Child("securityContext"), []namedField{
				{sc.AppArmorProfile != nil, "appArmorProfile"}, {sc.SELinuxOptions != nil, "seLinuxOptions"},
				{sc.SeccompProfile != nil, "seccompProfile"}, {sc.Capabilities != nil, "capabilities"},
				{sc.ReadOnlyRootFilesystem != nil, "readOnlyRootFilesystem"}, {sc.Privileged != nil, "privileged"},
				{sc.AllowPrivilegeEscalation != nil, "allowPrivilegeEscalation"}, {sc.ProcMount != nil, "procMount"},
				{sc.RunAsUser != nil, "runAsUser"}, {sc.RunAsGroup != nil, "runAsGroup"},
			})
		}
	})
}

// hostProcess checks HostProcess containers. If a pod has such a container, all its containers must be HostProcess containers, and the
// pod must use the host's network.
func (r *review) hostProcess(p *field.Path) {
	var pod *bool
	if sc := r.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		pod = sc.WindowsOptions.HostProcess
	}
	some, set := false, true
	eachContainer(r.spec, func(p *field.Path, c *v1.Container) {
		own := pod
		if sc := c.SecurityContext; sc != nil && sc.WindowsOptions != nil && sc.WindowsOptions.HostProcess != nil {
			own = sc.WindowsOptions.HostProcess
			r.failIf(pod != nil && *pod != *own, p.Child("securityContext", "windowsOptions", "hostProcess"), *own,
				"must be equal to the pod's value")
		}
		some, set = some || podspec.IsTrue(own), set && podspec.IsTrue(own)
	})
	if some {
		r.failIf(!set, p, "", "must be true for all containers if it is true for one")
		r.failIf(!r.spec.HostNetwork, p.Child("hostNetwork"), false, "must be true for hostProcess containers")
	}
}

var (
	controlChars  = pattern.New(`[[:cntrl:]]`)
	netBIOSDomain = pattern.New(`^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$`)
	dnsDomain     = pattern.New(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
)

func (r *review) windowsOptions(p *field.Path, o *v1.WindowsSecurityContextOptions) {
	if o == nil {
		return
	}
	if o.GMSACredentialSpecName != nil {
		r.checkRule(p.Child("gmsaCredentialSpecName"), *o.GMSACredentialSpecName, checkSubdomain)
	}
	if o.GMSACredentialSpec != nil {
		size := len(*o.GMSACredentialSpec)
		r.failIf(size == 0 || size > 64<<10, p.Child("gmsaCredentialSpec"), "", "must have 1 byte to 64 KiB")
	}
	if o.RunAsUserName == nil {
		return
	}
	at, name := p.Child("runAsUserName"), *o.RunAsUserName
	domain, user, qualified := strings.Cut(name, `\`)
	if !qualified {
		user = name
	}
	switch {
	case name == "" || controlChars().MatchString(name):
		r.addInvalid(at, name, "must not be empty or have control characters")
	case strings.Contains(user, `\`):
		r.addInvalid(at, name, "must not have more than one backslash")
	default:
		r.failIf(qualified && (len(domain) >= 256 || !netBIOSDomain().MatchString(domain) && !dnsDomain().MatchString(domain)), at, name,
			"must have a NetBIOS or DNS domain before the backslash")
		r.failIf(user == "" || len(user) > 104, at, name, "must have a user of 1 to 104 characters")
		r.failIf(user != "" && strings.Trim(user, ". ") == "" || strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`), at, name,
			`must have a user that is not only dots and spaces and has none of "/\:;|=,+*?<>@[]`)
	}
}
