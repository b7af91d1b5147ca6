package ocispec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// addDevices adds the devices in the container's configuration. For a directory, it adds all devices
// below the directory. A privileged container also gets all devices of the host. The OCI runtime
// adds the default devices.
func addDevices(in Input, s *specs.Spec) error {
	privileged := in.securityContext().GetPrivileged()
	s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: privileged, Access: "rwm"}}
	for _, d := range in.Container.GetDevices() {
		found, err := devicesAt(d.GetHostPath(), d.GetContainerPath())
		if err != nil {
			return err
		}
		if in.Users == "" || privileged {
			s.Linux.Devices = append(s.Linux.Devices, found...)
		} // otherwise addMounts adds bind mounts
		for i := range found {
			if privileged {
				break
			}
			dev := &found[i]
			s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
				Allow: true, Type: dev.Type, Major: &dev.Major, Minor: &dev.Minor, Access: d.GetPermissions(),
			})
		}
	}
	if !privileged {
		return nil
	}
	own := map[string]bool{}
	for _, d := range s.Linux.Devices {
		own[d.Path] = true
	}
	for _, d := range in.Host.Devices {
		if !own[d.Path] {
			s.Linux.Devices = append(s.Linux.Devices, d)
		}
	}
	return nil
}

// maxDevices is the maximum number of devices in a directory of the configuration.
const maxDevices = 1024

// notDevices contains directories of /dev without devices of the host. Other CRI runtimes skip the
// same directories.
var notDevices = []string{"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"}

// devicesAt returns the device node at a path on the host, or all device nodes below it if it is a directory. Other files in the directory
// are skipped. The given path is the path in the container.
func devicesAt(host, at string) (all []specs.LinuxDevice, err error) {
	at = path.Clean(at)
	if st, err := os.Stat(host); err != nil || !st.IsDir() {
		dev, err := Device(host, at)
		return []specs.LinuxDevice{dev}, err
	}
	root, err := filepath.EvalSymlinks(host)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", host, err)
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // just removed
		case err != nil:
			return err
		case d.IsDir() && p != root && slices.Contains(notDevices, d.Name()):
			return fs.SkipDir
		case d.Type()&fs.ModeDevice == 0 || d.Name() == "console":
			return nil
		case len(all) == maxDevices:
			return fmt.Errorf("more than %d devices", maxDevices)
		}
		dev, err := Device(p, path.Join(at, strings.TrimPrefix(p, root)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all = append(all, dev)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", host, err)
	}
	return all, nil
}

// Device returns the OCI specification of a device in a container. The device has the given path in the container, and the type,
// numbers, owner and mode of the device node at the path host.
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
