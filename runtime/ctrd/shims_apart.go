package ctrd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// whyNoNewPods returns why new sandboxes must not join the shim with a PID, or "" if they may.
func (r *Runtime) whyNoNewPods(pid int) string {
	switch {
	case inOtherMounts(pid):
		return "it runs in another mount namespace than the agent"
	case isOtherVersion(pid, r.c.ShimPath):
		return "it was started by another version of islet"
	}
	return ""
}

// isOtherVersion reports whether a shim runs another program than the one at a path. A shim runs for as long as it has a pod, which may be
// years. If new pods joined it, corrections of the shim would never reach them, and it would ignore new fields of a request. The name of a
// program contains the hash of its content (see shim.Unpack). The result is false if the process cannot be inspected.
func isOtherVersion(pid int, path string) bool {
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil {
		return false
	}
	// The kernel appends the suffix if the file was removed. The directories may differ, because the state directory may be a symlink.
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)")) != filepath.Base(path)
}

// inOtherMounts reports whether a shim runs in another mount namespace than this process. At least
// one thread of a shim is in the mount namespace of the agent that started it; see server.Host. A
// shim in another mount namespace does not see the pinned namespaces and bundles that this process
// mounts, so setns would fail with EINVAL. The result is false if the process is unknown or cannot
// be inspected.
func inOtherMounts(pid int) bool {
	self, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil || pid <= 0 {
		return false
	}
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/[0-9]*/ns/mnt"))
	if err != nil {
		return false
	}
	different := 0
	for _, thread := range threads {
		switch ns, err := os.Readlink(thread); {
		case err != nil: // the thread has ended
		case ns == self:
			return false
		default:
			different++
		}
	}
	return different > 0
}
