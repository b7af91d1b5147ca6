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

// Answers calls statfs for a path and returns when the file system has responded. If the file
// system's server does not respond, the call blocks. A path that does not exist is no error.
//
// If a FUSE server has received a request but does not respond, the waiting thread cannot be
// killed. If that were a thread of the agent, the agent's files would remain open and locked after
// kill -9, and no new agent could start. So another program makes the call first, if this machine
// has one.
// https://www.kernel.org/doc/html/latest/filesystems/fuse/fuse.html#interrupting-filesystem-operations
func Answers(path string) error {
	if mayBeFUSE(path) {
		// Ignore the result: the file system has responded, or the program does not exist.
		_ = exec.Command("stat", "-f", "--", path).Run()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("statfs %s: %w", path, err)
	}
	return nil
}

// mayBeFUSE reports whether a path, which may contain symlinks, may be in a FUSE file system. It
// does not access such a file system. It returns false if the path is in the root file system, or
// if no FUSE file system is mounted at all.
func mayBeFUSE(path string) bool {
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
