package ocispec

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/sorting"
)

// mounts adds the default mounts, the sandbox's files and the container's own mounts to s. Parents
// come before children. A container's own mount replaces another one at the same path.
func mounts(in Input, s *specs.Spec) {
	own := in.Container.GetMounts()
	// A default mount below one of the container's own mounts, such as /dev, would cover a part of
	// it.
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
		} else if in.security().GetReadonlyRootfs() {
			opts[2] = "ro"
		}
		all = append(all, specs.Mount{Destination: f.dst, Type: "bind", Source: f.src, Options: opts})
	}
	all = slices.DeleteFunc(all, func(m specs.Mount) bool {
		return slices.ContainsFunc(own, func(o *api.Mount) bool { return filepath.Clean(o.GetContainerPath()) == m.Destination })
	})
	for _, m := range own {
		all = append(all, bind(m, s))
	}
	if in.Users != "" && !in.security().GetPrivileged() { // no process can create device nodes in a user namespace
		for _, d := range in.Container.GetDevices() {
			all = append(all, specs.Mount{
				Destination: filepath.Clean(d.GetContainerPath()), Type: "bind", Source: d.GetHostPath(),
				Options: []string{"rbind", "rprivate"},
			})
		}
	}
	sorting.StableBy(all, func(a, b specs.Mount) int { return depth(a) - depth(b) })
	for _, v := range in.Volumes { // before all others, because the pod's own mounts may be below them or cover them
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: v.Path, Type: "bind", Source: v.Source, Options: []string{"rbind", "rprivate", "rw"},
		})
	}
	s.Mounts = append(s.Mounts, all...)
}

func depth(m specs.Mount) int {
	if m.Destination == "/" {
		return 0
	}
	return strings.Count(m.Destination, "/")
}

func defaultMounts(in Input) []specs.Mount {
	ro := "ro"
	if in.security().GetPrivileged() {
		ro = "rw"
	}
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", ro}}
	if in.Users != "" && in.Net == "" {
		// Only the owner of the network namespace can mount sysfs, which here is the host.
		sys = specs.Mount{
			Destination: "/sys", Type: "bind", Source: "/sys",
			Options: []string{"rbind", "rprivate", "nosuid", "noexec", "nodev", "rro"},
		}
	}
	cgroup := specs.Mount{
		Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", ro},
	}
	if in.CgroupV2 && in.security().GetPrivileged() {
		// A privileged container shares the host's cgroup namespace. A namespace has only one set
		// of cgroup2 mount options, so a new mount would clear the host's nsdelegate and
		// memory_recursiveprot.
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

// bind converts one of the container's own mounts to a bind mount. It also sets the propagation of
// the root if the mount requires it.
func bind(m *api.Mount, s *specs.Spec) specs.Mount {
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
	case m.GetReadonly():
		opts = append(opts, "ro")
	default:
		opts = append(opts, "rw")
	}
	if len(m.GetUidMappings()) > 0 { // owners are mapped to the container's user namespace
		opts = append(opts, "idmap")
	}
	if m.GetImage() != nil { // an image volume contains data, so no file in it is executable
		opts = append(opts, "nosuid", "nodev", "noexec")
	} else {
		opts = append(opts, m.GetMountOptions()...)
	}
	return specs.Mount{Destination: filepath.Clean(m.GetContainerPath()), Type: "bind", Source: m.GetHostPath(), Options: opts}
}
