package ctrd

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// convertDeprecatedProfiles converts the CRI's deprecated fields for security profiles to the current fields. Older clients still use the
// deprecated fields. If convertDeprecatedProfiles ignored these fields, the container would run unconfined.
func convertDeprecatedProfiles(c *api.ContainerConfig) error {
	sec := c.GetLinux().GetSecurityContext()
	if sec == nil {
		return nil
	}
	for _, p := range []struct {
		field, deprecated string
		current           **api.SecurityProfile
	}{{"seccomp_profile_path", sec.GetSeccompProfilePath(), &sec.Seccomp}, {"apparmor_profile", sec.GetApparmorProfile(), &sec.Apparmor}} {
		if *p.current == nil && p.deprecated != "" {
			profile, err := profileOf(p.deprecated)
			if err != nil {
				return fmt.Errorf("%s %q: %w", p.field, p.deprecated, err)
			}
			*p.current = profile
		}
		if (*p.current).GetLocalhostRef() != "" && (*p.current).GetProfileType() != api.SecurityProfile_Localhost {
			return fmt.Errorf("security profile %q: a localhost_ref needs the profile type Localhost: %w",
				(*p.current).GetLocalhostRef(), errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// profileOf parses the value of a deprecated profile field: runtime/default, docker/default, unconfined or localhost/NAME.
func profileOf(name string) (*api.SecurityProfile, error) {
	ref, local := strings.CutPrefix(name, "localhost/")
	switch {
	case name == "runtime/default", name == "docker/default":
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}, nil
	case name == "unconfined":
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_Unconfined}, nil
	case local && ref != "":
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_Localhost, LocalhostRef: ref}, nil
	}
	return nil, fmt.Errorf("a profile must be runtime/default, unconfined or localhost/NAME: %w", errdefs.ErrInvalidArgument)
}
