package ocispec

import (
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// devices gives a privileged container all of the host's devices, and others
// those they name beyond the usual ones, which the OCI runtime adds itself.
func devices(in Input, s *specs.Spec) error {
	if in.security().GetPrivileged() {
		s.Linux.Devices = in.Host.Devices
		s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		return nil
	}
	s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	for _, d := range in.Container.GetDevices() {
		dev, err := Device(d.GetHostPath(), d.GetContainerPath())
		if err != nil {
			return err
		}
		if in.Users == "" {
			s.Linux.Devices = append(s.Linux.Devices, dev)
		} // else it is bound: see mounts
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: dev.Type, Major: &dev.Major, Minor: &dev.Minor, Access: d.GetPermissions(),
		})
	}
	return nil
}

// Device describes a device node of the host for use at path in a container.
func Device(host, path string) (specs.LinuxDevice, error) {
	var st unix.Stat_t
	if err := unix.Stat(host, &st); err != nil {
		return specs.LinuxDevice{}, fmt.Errorf("device %s: %w", host, err)
	}
	kind := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		kind = "c"
	case unix.S_IFBLK:
		kind = "b"
	default:
		return specs.LinuxDevice{}, fmt.Errorf("device %s: not a device", host)
	}
	mode := os.FileMode(st.Mode &^ unix.S_IFMT)
	return specs.LinuxDevice{
		Path: path, Type: kind, Major: int64(unix.Major(uint64(st.Rdev))), Minor: int64(unix.Minor(uint64(st.Rdev))),
		FileMode: &mode, UID: &st.Uid, GID: &st.Gid,
	}, nil
}
