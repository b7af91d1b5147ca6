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

// Answers returns once the file system that a path is in says how large it is; it may hang, as
// long as its server is gone. Of what is not there who uses it says so.
//
// Who waits for a file system that is a process's (FUSE), and which has taken the question and
// does not answer, cannot be killed. A thread of the agent that does would keep the agent's
// files open, and its locks, after kill -9: no agent could start. So another program asks first,
// where this machine has it.
// https://www.kernel.org/doc/html/latest/filesystems/fuse/fuse.html#interrupting-filesystem-operations
func Answers(path string) error {
	if mayBeOfProcess(path) {
		_ = exec.Command("stat", "-f", "--", path).Run() // whatever it says: it was answered, or nobody asked
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("statfs %s: %w", path, err)
	}
	return nil
}

// mayBeOfProcess reports whether a path may be in a file system that is a process's, also by
// links. It asks no such file system: it looks whether the path stays in the root's, else
// whether there is any.
func mayBeOfProcess(path string) bool {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if err == nil {
		unix.Close(fd)
		return false
	}
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	all, err := mounted()
	return err == nil && slices.ContainsFunc(all, func(m *mountinfo.Info) bool {
		return m.FSType == "fuse" || m.FSType == "fuseblk" || strings.HasPrefix(m.FSType, "fuse.")
	})
}
