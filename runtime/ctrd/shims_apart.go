package ctrd

import (
	"os"
	"path/filepath"
	"strconv"
)

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
