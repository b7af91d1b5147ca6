package ocispec

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/sorting"
)

// addMounts adds mounts to s: the default mounts, the files of the sandbox and the mounts of the
// container's configuration. Parents come before children. A mount in the configuration replaces
// another one at the same path.
func addMounts(in Input, s *specs.Spec) {
	own := in.Container.GetMounts()
	// Remove default mounts that would cover a part of a mount in the configuration, such as the
	// host's /dev.
	all := slices.DeleteFunc(defaultMounts(in), func(m specs.Mount) bool {
		return slices.ContainsFunc(own, func(o *api.Mount) bool {
			at := filepath.Clean(o.GetContainerPath())
			return at != "/" && strings.HasPrefix(m.Destination, at+"/")
		})
	})
	for _, f := range []struct{ src, dst string }{
		{in.Hosts, "/etc/hosts"}, {in.Hostname, "/etc/hostname"}, {in.Resolv, "/etc/resolv.conf"}, {in.Shm, "/dev/shm"},
	} {
		if f.src == "" {
			continue
		}
		opts := []string{"rbind", "rprivate", "rw"}
		if f.dst == "/dev/shm" {
			opts = []string{"rbind", "rprivate", "rw", "nosuid", "nodev", "noexec"}
		} else if in.securityContext().GetReadonlyRootfs() {
			opts[2] = "ro"
		}
		all = append(all, specs.Mount{Destination: f.dst, Type: "bind", Source: f.src, Options: opts})
	}
	all = slices.DeleteFunc(all, func(m specs.Mount) bool {
		return slices.ContainsFunc(own, func(o *api.Mount) bool { return filepath.Clean(o.GetContainerPath()) == m.Destination })
	})
	for _, m := range own {
		all = append(all, bindMount(m, in.HostOptions[m.GetHostPath()], s))
	}
	if in.Users != "" && !in.securityContext().GetPrivileged() { // device nodes cannot be created in a user namespace
		for _, d := range in.Container.GetDevices() {
			all = append(all, specs.Mount{
				Destination: filepath.Clean(d.GetContainerPath()), Type: "bind", Source: d.GetHostPath(),
				Options: []string{"rbind", "rprivate"},
			})
		}
	}
	sorting.StableBy(all, func(a, b specs.Mount) int { return mountDepth(a) - mountDepth(b) })
	for _, v := range in.Volumes { // first, because mounts of the configuration may be below or on them
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: v.Path, Type: "bind", Source: v.Source, Options: []string{"rbind", "rprivate", "rw"},
		})
	}
	s.Mounts = append(s.Mounts, all...)
}

func mountDepth(m specs.Mount) int {
	if m.Destination == "/" {
		return 0
	}
	return strings.Count(m.Destination, "/")
}

func defaultMounts(in Input) []specs.Mount {
	ro := "ro"
	if in.securityContext().GetPrivileged() {
		ro = "rw"
	}
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", ro}}
	if in.Users != "" && in.Net == "" {
		// Mounting sysfs needs privileges in the user namespace of the network namespace, which is
		// the host's.
		sys = specs.Mount{
			Destination: "/sys", Type: "bind", Source: "/sys",
			Options: []string{"rbind", "rprivate", "nosuid", "noexec", "nodev", "rro"},
		}
	}
	cgroup := specs.Mount{
		Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", ro},
	}
	if in.CgroupV2 && in.securityContext().GetPrivileged() {
		// A privileged container is in the host's cgroup namespace. All cgroup2 mounts of a
		// namespace share their options, so a new mount would clear nsdelegate and
		// memory_recursiveprot of the host.
		cgroup = specs.Mount{
			Destination: "/sys/fs/cgroup", Type: "bind", Source: "/sys/fs/cgroup",
			Options: []string{"rbind", "rprivate", "nosuid", "noexec", "nodev", ro},
		}
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"},
		},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		sys,
		cgroup,
	}
}

// bindMount converts a mount of the container's configuration to a bind mount. The bind mount keeps the given options of the host's mount.
// It also sets the propagation of the root file system that the mount needs.
func bindMount(m *api.Mount, host []string, s *specs.Spec) specs.Mount {
	opts := []string{"rbind"}
	switch m.GetPropagation() {
	case api.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		opts = append(opts, "rshared")
		s.Linux.RootfsPropagation = "rshared"
	case api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		opts = append(opts, "rslave")
		if s.Linux.RootfsPropagation != "rshared" {
			s.Linux.RootfsPropagation = "rslave"
		}
	default:
		opts = append(opts, "rprivate")
	}
	switch {
	case m.GetReadonly() && m.GetRecursiveReadOnly():
		opts = append(opts, "rro")
	case m.GetReadonly() || slices.Contains(host, "ro"):
		opts = append(opts, "ro")
	default:
		opts = append(opts, "rw")
	}
	if len(m.GetUidMappings()) > 0 { // the CRI requests an idmapped mount
		opts = append(opts, "idmap")
	}
	if m.GetImage() != nil { // an image volume contains only data
		opts = append(opts, "nosuid", "nodev", "noexec")
	} else {
		opts = append(opts, m.GetMountOptions()...)
	}
	for _, o := range host {
		if o != "ro" && !slices.Contains(opts, o) {
			opts = append(opts, o)
		}
	}
	return specs.Mount{Destination: filepath.Clean(m.GetContainerPath()), Type: "bind", Source: m.GetHostPath(), Options: opts}
}
