package selinux

import (
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/pattern"
)

// unconfinedType is the type of unconfined containers. Without SELinux, it is not an error to request
// it, because all containers are unconfined.
const unconfinedType = "spc_t"

// errDisabled is returned if SELinux is disabled in the kernel.
var errDisabled = errors.New("SELinux is not enabled on the host")

// errPolicy is returned if the policy of the host has no labels for containers.
var errPolicy = errors.New("the SELinux policy has no labels for containers: install the package container-selinux")

// A Host determines and sets SELinux labels. Its methods are safe for concurrent use.
type Host struct {
	enabled func() bool
	init    func(options []string) (process, file string, err error)
	get     func(path string) (string, error)
	set     func(path, label string) error
}

// New returns a Host. It does not access the system.
func New() *Host {
	return &Host{enabled: selinux.GetEnabled, init: label.InitLabels, get: selinux.FileLabel, set: selinux.SetFileLabel}
}

// Enabled returns nil if SELinux is enabled, and otherwise an error.
func (h *Host) Enabled() error {
	if !h.enabled() {
		return errDisabled
	}
	return nil
}

// Labels contains the labels of a container's process and files. An empty label is not set.
type Labels struct{ Process, File string }

// Labels returns the labels of a container. If the container specifies no level, it gets the level of its pod. The process of a privileged
// container gets no label. It is an error if seLinuxOptions cannot be enforced, unless only a level is specified.
func (h *Host) Labels(sec *api.LinuxContainerSecurityContext, level string) (Labels, error) {
	o := sec.GetSelinuxOptions()
	if o.GetUser() == "" && o.GetRole() == "" && o.GetType() == "" && o.GetLevel() == "" {
		return Labels{}, nil
	}
	if err := h.Enabled(); err != nil {
		if o.GetType() == unconfinedType || o.GetUser() == "" && o.GetRole() == "" && o.GetType() == "" {
			return Labels{}, nil // a level only isolates containers from each other
		}
		return Labels{}, fmt.Errorf("seLinuxOptions cannot be enforced: %w", err)
	}
	if o.GetLevel() != "" {
		level = o.GetLevel()
	}
	if level != "" && !validLevel().MatchString(level) {
		return Labels{}, fmt.Errorf("seLinuxOptions: level %q is not well-formed: use one like s0:c123,c456", level)
	}
	var options []string
	for _, part := range [][2]string{{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", level}} {
		if part[0] != "level" && !validName().MatchString(part[1]) {
			return Labels{}, fmt.Errorf("seLinuxOptions: %s %.80q is not well-formed: use letters, digits and _.-", part[0], part[1])
		}
		if part[1] != "" {
			options = append(options, part[0]+":"+part[1])
		}
	}
	var l Labels
	var err error
	if l.Process, l.File, err = h.init(options); err != nil {
		return Labels{}, fmt.Errorf("seLinuxOptions %s: %w", strings.Join(options, " "), err)
	}
	if l.Process == "" || l.File == "" {
		return Labels{}, fmt.Errorf("seLinuxOptions cannot be enforced: %w", errPolicy)
	}
	if sec.GetPrivileged() {
		l.Process = ""
	}
	return l, nil
}

// Files returns a function that returns the file label for seLinuxOptions. It returns nil if
// SELinux is disabled.
func (h *Host) Files() func(user, role, kind, level string) (string, error) {
	if h.Enabled() != nil {
		return nil
	}
	return func(user, role, kind, level string) (string, error) {
		o := &api.SELinuxOption{User: user, Role: role, Type: kind, Level: level}
		l, err := h.Labels(&api.LinuxContainerSecurityContext{SelinuxOptions: o}, "")
		return l.File, err
	}
}

// validLevel matches the levels that containerd accepts: one or two sensitivities and optional
// categories.
var validLevel = pattern.New(`^s\d(-s\d)??(:c\d{1,4}(\.c\d{1,4})?(,c\d{1,4}(\.c\d{1,4})?)*)?$`)

// validName matches the names of users, roles and types in a policy. The label becomes a part of mount options, so a
// name must not contain their separators and quotes.
var validName = pattern.New(`^[A-Za-z0-9_.-]*$`)

// AllocateLevel reserves a unique level for a pod. Containers of the pod that specify no level get it, so
// that they can share volumes with each other, but not with other pods. AllocateLevel returns "" if SELinux
// is disabled. Release frees the level.
func (h *Host) AllocateLevel() string {
	if !h.enabled() {
		return ""
	}
	process, _, err := h.init(nil)
	if err != nil {
		return ""
	}
	c, err := selinux.NewContext(process)
	if err != nil {
		return ""
	}
	return c["level"]
}

// ReserveLevel reserves a level that an earlier process of the agent assigned to a pod.
func (h *Host) ReserveLevel(level string) {
	if level != "" && h.enabled() {
		selinux.ReserveLabel(contextWithLevel(level))
	}
}

// Release frees a level.
func (h *Host) Release(level string) {
	if level != "" && h.enabled() {
		selinux.ReleaseLabel(contextWithLevel(level))
	}
}

// contextWithLevel returns an SELinux context with the level. The library ignores the user, the role and the type in it.
func contextWithLevel(level string) string { return "u:r:t:" + level }
