package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// crun is the name of the OCI runtime for which protect prepares a mount; see programs. Other OCI
// runtimes protect themselves with a sealed copy, or need their own path.
const crun = "crun"

// programs are OCI runtimes. Each is an open file on a private read-only mount. A container must
// not be able to write to the program that started it through /proc/<pid>/exe (CVE-2019-5736).
// Therefore crun first checks whether its own file is writable. If so, it creates such a mount and
// executes itself again from it. The shim creates the mount once, so that crun need not execute
// itself a second time in each call.
// https://github.com/containers/crun/blob/main/src/libcrun/cloned_binary.c
type programs map[string]program

type program struct {
	file identity
	fd   int
}

// An identity changes if a file is replaced or written to.
type identity struct {
	dev, ino     uint64
	size         int64
	changed, mod unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Ctim, st.Mtim}
}

// protect makes cmd execute its program from such a mount. cmd must not have been started. If this
// fails, cmd is unchanged, and crun protects itself. cmd must be started before the next call of
// protect, because that call may close the program's file.
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
	// /proc/self is not possible, because the descriptors have other numbers in the forked process.
	cmd.Path = "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(known.fd)
}

// openProgram opens a program on a mount of its own. It must be an ELF file, because the
// interpreter of a script could not open the script.
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
