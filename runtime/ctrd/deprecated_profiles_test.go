package ctrd

import (
	"testing"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestProfiles checks that a profile in a deprecated field of the CRI is used if the current field is not set. An invalid profile is an
// error.
func TestProfiles(t *testing.T) {
	local, standard, none := &api.SecurityProfile{ProfileType: api.SecurityProfile_Localhost, LocalhostRef: "/x/y"},
		&api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}, &api.SecurityProfile{ProfileType: api.SecurityProfile_Unconfined}
	for _, c := range []struct {
		deprecated    string
		current, want *api.SecurityProfile
		fails         bool
	}{
		{"", nil, nil, false}, {"runtime/default", nil, standard, false}, {"docker/default", nil, standard, false}, {"unconfined", nil, none, false},
		{"localhost//x/y", nil, local, false}, {"unconfined", local, local, false}, {"", standard, standard, false},
		{"localhost/", nil, nil, true}, {"default", nil, nil, true}, {"", &api.SecurityProfile{LocalhostRef: "/x"}, nil, true},
	} {
		for _, apparmor := range []bool{false, true} {
			sec := &api.LinuxContainerSecurityContext{SeccompProfilePath: c.deprecated, Seccomp: proto.CloneOf(c.current)}
			if apparmor {
				sec = &api.LinuxContainerSecurityContext{ApparmorProfile: c.deprecated, Apparmor: proto.CloneOf(c.current)}
			}
			err := convertDeprecatedProfiles(&api.ContainerConfig{Linux: &api.LinuxContainerConfig{SecurityContext: sec}})
			got, other := sec.Seccomp, sec.Apparmor
			if apparmor {
				got, other = other, got
			}
			if (err != nil) != c.fails || !c.fails && !proto.Equal(got, c.want) || other != nil {
				t.Errorf("%q with %v: %v and %v, %v; want %v", c.deprecated, c.current, got, other, err, c.want)
			}
		}
	}
	if err := convertDeprecatedProfiles(&api.ContainerConfig{}); err != nil {
		t.Error(err)
	}
}
