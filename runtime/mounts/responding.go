package mounts

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// CheckResponding calls statfs(2) for a path. It blocks while the server of the file system does not
// respond. A missing path is not an error.
//
// While a FUSE server processes a request, the thread that waits for the server's reply cannot be killed. If this were a thread of the
// agent, the agent's files would stay locked after kill -9, and no new agent could start. Therefore CheckResponding first calls statfs in
// another program, stat, if it exists.
// https://www.kernel.org/doc/html/latest/filesystems/fuse/fuse.html#interrupting-filesystem-operations
func CheckResponding(path string) error {
	if mayBeFUSE(path) {
		// Ignore the result: when Run returns, either the file system has responded, or the program stat does not exist.
		_ = exec.Command("stat", "-f", "--", path).Run()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("statfs %s: %w", path, err)
	}
	return nil
}

// mayBeFUSE reports whether a path may be in a FUSE file system, without accessing that file
// system. It returns false if the path is in the root file system, or if no FUSE file system is
// mounted. The path may contain symlinks.
func mayBeFUSE(path string) bool {
	if strings.HasPrefix(path, "/proc/") { // may lead to a mount of another mount namespace, such as a container's
		return true
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if err == nil {
		unix.Close(fd)
		return false
	}
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	all, err := mountTable()
	return err == nil && slices.ContainsFunc(all, func(m *mountinfo.Info) bool {
		return m.FSType == "fuse" || m.FSType == "fuseblk" || strings.HasPrefix(m.FSType, "fuse.")
	})
}
