package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// crunName is the only OCI runtime that the shim protects. runc, for example, executes a sealed copy of itself.
const crunName = "crun"

// openedPrograms contains the opened OCI runtimes by path. Each file is on a private read-only mount. A
// container could otherwise use /proc/<pid>/exe to write to the OCI runtime that started the container
// (CVE-2019-5736). If its own file is writable, crun creates a read-only mount and executes itself
// again from there. The shim creates this mount once, so that crun does not have to do so in each call.
// https://github.com/containers/crun/blob/main/src/libcrun/cloned_binary.c
type openedPrograms map[string]program

type program struct {
	file identity
	fd   int
}

// An identity identifies the content of a file. It changes if the file is replaced or written to.
type identity struct {
	dev, ino     uint64
	size         int64
	changed, mod unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Ctim, st.Mtim}
}

// protectCommand changes the path of a crun command to the file on the read-only mount. If this fails, the path is unchanged, and crun
// protects itself. The command must be started before the next call, which may close that file.
func (p openedPrograms) protectCommand(cmd *exec.Cmd) {
	if filepath.Base(cmd.Path) != crunName {
		return
	}
	var st unix.Stat_t
	if unix.Stat(cmd.Path, &st) != nil {
		return
	}
	known, ok := p[cmd.Path]
	if !ok || known.file != identityOf(&st) {
		if ok {
			unix.Close(known.fd)
			delete(p, cmd.Path)
		}
		var err error
		if known, err = openProgram(cmd.Path); err != nil {
			return
		}
		p[cmd.Path] = known
	}
	// Do not use /proc/self here: the forked process has other file descriptors.
	cmd.Path = "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(known.fd)
}

// openProgram opens a program on a new read-only mount. Scripts are rejected: the interpreter could
// not open the script through the file descriptor, which is closed on exec.
func openProgram(path string) (program, error) {
	head := make([]byte, 4)
	f, err := os.Open(path)
	if err != nil {
		return program{}, err
	}
	defer f.Close()
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != "\x7fELF" {
		return program{}, fmt.Errorf("%s is not an ELF program", path)
	}
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return program{}, err
	}
	var st unix.Stat_t
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return program{}, err
	}
	return program{file: identityOf(&st), fd: fd}, nil
}
