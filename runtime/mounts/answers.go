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

// Answers calls statfs for a path and returns when its file system has responded. It may block for
// as long as the file system's server is gone. A path that does not exist is not an error.
//
// A thread that waits for a FUSE server which has received a request but does not respond cannot be
// killed. If it were a thread of the agent, the agent's files would stay open, and locked, after
// kill -9, and no new agent could start. So another program makes the call first, if this machine
// has it.
// https://www.kernel.org/doc/html/latest/filesystems/fuse/fuse.html#interrupting-filesystem-operations
func Answers(path string) error {
	if mayBeFUSE(path) {
		// Ignore the result: either the file system has responded, or there is no such program.
		_ = exec.Command("stat", "-f", "--", path).Run()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("statfs %s: %w", path, err)
	}
	return nil
}

// mayBeFUSE reports whether a path, which may have symlinks, may be in a FUSE file system. It does
// not access such a file system: it checks whether the path stays in the root file system, or else
// whether any FUSE file system is mounted.
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
	all, err := mounted()
	return err == nil && slices.ContainsFunc(all, func(m *mountinfo.Info) bool {
		return m.FSType == "fuse" || m.FSType == "fuseblk" || strings.HasPrefix(m.FSType, "fuse.")
	})
}
