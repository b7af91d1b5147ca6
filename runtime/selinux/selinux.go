package selinux

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unconfined is the type of containers that SELinux leaves alone. Where it is off
// they all run so, and who asks for it gets it.
const unconfined = "spc_t"

// errOff says that the kernel does not enforce labels.
var errOff = errors.New("SELinux is not enabled on the host")

// errPolicy says that the host's policy knows no containers.
var errPolicy = errors.New("the SELinux policy has no labels for containers: install the package container-selinux")

// A Host is one with, or without, SELinux. Its methods may be called at once.
type Host struct {
	enabled func() bool
	init    func(options []string) (process, file string, err error)
	get     func(path string) (string, error)
	set     func(path, label string) error
}

// New looks at nothing yet.
func New() *Host {
	return &Host{enabled: selinux.GetEnabled, init: label.InitLabels, get: selinux.FileLabel, set: selinux.SetFileLabel}
}

// Enabled is nil, or says why labels are not enforced here.
func (h *Host) Enabled() error {
	if !h.enabled() {
		return errOff
	}
	return nil
}

// Labels are those of a container: of its process, and of the files that it is
// given. They are empty where nothing is to be labelled.
type Labels struct{ Process, File string }

// Labels makes the labels that a container asks for. Without a level of its own it
// gets level, that of its pod. A privileged container's process has none. What was
// asked for and cannot be enforced is an error, but for a level alone.
func (h *Host) Labels(sec *api.LinuxContainerSecurityContext, level string) (Labels, error) {
	o := sec.GetSelinuxOptions()
	if o.GetUser() == "" && o.GetRole() == "" && o.GetType() == "" && o.GetLevel() == "" {
		return Labels{}, nil
	}
	if err := h.Enabled(); err != nil {
		if o.GetType() == unconfined || o.GetUser() == "" && o.GetRole() == "" && o.GetType() == "" {
			return Labels{}, nil // a level alone separates from others what nothing separates here
		}
		return Labels{}, fmt.Errorf("seLinuxOptions cannot be enforced: %w", err)
	}
	if o.GetLevel() != "" {
		level = o.GetLevel()
	}
	if level != "" && !wellFormed.MatchString(level) {
		return Labels{}, fmt.Errorf("seLinuxOptions: level %q is not well-formed: give one like s0:c123,c456", level)
	}
	var options []string
	for _, part := range [][2]string{{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", level}} {
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

// Files gives the labels of files of containers that ask for one by user, role, type and
// level; nil where SELinux is off.
func (h *Host) Files() func(user, role, kind, level string) (string, error) {
	if h.Enabled() != nil {
		return nil
	}
	return func(user, role, kind, level string) (string, error) {
		l, err := h.Labels(&api.LinuxContainerSecurityContext{SelinuxOptions: &api.SELinuxOption{User: user, Role: role, Type: kind, Level: level}}, "")
		return l.File, err
	}
}

// wellFormed is a level as containerd accepts it: a sensitivity or two, and categories.
var wellFormed = regexp.MustCompile(`^s\d(-s\d)??(:c\d{1,4}(\.c\d{1,4})?(,c\d{1,4}(\.c\d{1,4})?)*)?$`)

// Level reserves a level that no other pod has, for those of a pod's containers that
// bring none: so they share their volumes, and no other pod's. It is empty where
// SELinux is off. Release gives it back.
func (h *Host) Level() string {
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

// Keep reserves a level that an earlier process has given to a pod.
func (h *Host) Keep(level string) {
	if level != "" && h.enabled() {
		selinux.ReserveLabel(context(level))
	}
}

// Release gives a level back.
func (h *Host) Release(level string) {
	if level != "" && h.enabled() {
		selinux.ReleaseLabel(context(level))
	}
}

// context is one of a level, of which alone it is asked.
func context(level string) string { return "u:r:t:" + level }
