package ocispec

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/regular"
)

// maxProfile is the maximum size in bytes of a seccomp profile, as a file and when decoded.
const maxProfile = 4 << 20

// seccompProfile sets the seccomp profile of the container. A privileged container has none. The
// default profile depends on the capabilities, so they must be set before.
func seccompProfile(sec *api.LinuxContainerSecurityContext, s *specs.Spec) error {
	if sec.GetPrivileged() {
		return nil
	}
	switch p := sec.GetSeccomp(); {
	case p == nil, p.GetProfileType() == api.SecurityProfile_Unconfined:
	case p.GetProfileType() == api.SecurityProfile_RuntimeDefault:
		s.Linux.Seccomp = seccomp.DefaultProfile(s)
	default:
		b, err := regular.Read(strings.TrimPrefix(p.GetLocalhostRef(), "localhost/"), maxProfile)
		if err != nil {
			return fmt.Errorf("read seccomp profile: %w", err)
		}
		s.Linux.Seccomp = &specs.LinuxSeccomp{}
		if err = inputweight.JSON(b, s.Linux.Seccomp, maxProfile); err == nil {
			err = json.Unmarshal(b, s.Linux.Seccomp)
		}
		if err != nil {
			return fmt.Errorf("seccomp profile %s: %w", p.GetLocalhostRef(), err)
		}
	}
	return nil
}
