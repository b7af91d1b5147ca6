package ctrd

import (
	"os"
	"path/filepath"
	"strconv"
)

// inOtherMounts reports whether no thread of a process is in the mount namespace of this one. A shim
// has at least one thread in that of the agent which started it, see server.Host. It does not find
// the pinned namespaces and bundles that an agent in another mount namespace mounts: setns fails
// there with EINVAL. false if the process is not known, or cannot be looked at.
func inOtherMounts(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil || pid <= 0 {
		return false
	}
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/[0-9]*/ns/mnt"))
	if err != nil {
		return false
	}
	others := 0
	for _, thread := range threads {
		switch ns, err := os.Readlink(thread); {
		case err != nil: // the thread has ended
		case ns == own:
			return false
		default:
			others++
		}
	}
	return others > 0
}
