package ctrd

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// prepareHostPaths creates missing host paths and checks the propagation of the mounts. It returns hostOptions.
func prepareHostPaths(all []*api.Mount) (map[string][]string, error) {
	if err := errors.Join(makeHostPaths(all), checkPropagation(all)); err != nil {
		return nil, err
	}
	return hostOptions(all)
}

// hostOptions returns the options that restrict the host's mounts. The keys are the host paths of a container's
// mounts. A bind mount must repeat these options, because OCI runtimes clear all others. Otherwise a pod could write
// to a read-only mount, or start setuid programs and use device nodes where the host forbids it.
func hostOptions(all []*api.Mount) (map[string][]string, error) {
	var out map[string][]string
	for _, m := range all {
		path := m.GetHostPath()
		options, err := mountRestrictions(path)
		if errors.Is(err, fs.ErrNotExist) || len(options) == 0 && err == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("mount %s: read the options of the host's mount of %s: %w", m.GetContainerPath(), path, err)
		}
		if out == nil {
			out = map[string][]string{}
		}
		out[path] = options
	}
	return out, nil
}

// mountRestrictions returns the restricting options of the mount that contains path. The result contains "ro" only
// for a read-only mount, not for a read-only file system, which may become writable while the container runs.
func mountRestrictions(path string) (options []string, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, err
	}
	for _, o := range []struct {
		flag int64
		name string
	}{
		{unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"},
		{unix.ST_NOATIME, "noatime"}, {unix.ST_NODIRATIME, "nodiratime"},
	} {
		if int64(st.Flags)&o.flag != 0 {
			options = append(options, o.name)
		}
	}
	if int64(st.Flags)&unix.ST_RDONLY == 0 {
		return options, nil
	}
	path, err = withoutLinks(path)
	if err != nil {
		return nil, err
	}
	in, err := mounts.MountOf(path)
	if err == nil && in != nil && slices.Contains(strings.Split(in.Options, ","), "ro") {
		options = append(options, "ro")
	}
	return options, err
}
