package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// crun is the name of the OCI runtime that is started from a mount of its own: see
// programs. Others look for a sealed copy of themselves, or for their own path.
const crun = "crun"

// programs are OCI runtimes, each as an open file on a mount that nothing else sees and
// that is read-only. What runs in a container must not be able to write to the program
// that started it through /proc/<pid>/exe (CVE-2019-5736), so crun looks at its own file
// first: where that can be written to it makes such a mount and executes itself again from
// it. With the mount made here, once, each call spares the second start of the program.
// https://github.com/containers/crun/blob/main/src/libcrun/cloned_binary.c
type programs map[string]program

type program struct {
	file identity
	fd   int
}

// An identity changes when a file is replaced or written to.
type identity struct {
	dev, ino     uint64
	size         int64
	changed, mod unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Ctim, st.Mtim}
}

// protect makes cmd, which was not started, start its program from such a mount. Where that
// does not work it is left as it is, and crun protects itself. The next call may close what this
// one has opened: cmd has to be started before.
func (p programs) protect(cmd *exec.Cmd) {
	if filepath.Base(cmd.Path) != crun {
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
	// Not through /proc/self: the process that is to become crun has moved its own files.
	cmd.Path = "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(known.fd)
}

// openProgram opens a program on a mount of its own. It has to be one that the kernel
// starts by itself: an interpreter would not find it.
func openProgram(path string) (program, error) {
	head := make([]byte, 4)
	f, err := os.Open(path)
	if err != nil {
		return program{}, err
	}
	defer f.Close()
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != "\x7fELF" {
		return program{}, fmt.Errorf("%s is no program of the kernel's format", path)
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
