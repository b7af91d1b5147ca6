package containerfiles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Runtime returns the verbose status of a container. The status contains the PID of the
// container's first process.
type Runtime interface {
	ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error)
}

// A Root is the root directory of a container.
type Root struct {
	dir  *os.File
	path string // a path of dir that this process can open
	user *user  // writes files, and owns new ones; nil: this process
}

// ErrNoRoot means that the files of a container cannot be reached from the host.
var ErrNoRoot = errors.New("the files of the container cannot be reached from the host")

// Open opens the root directory of a running container. The caller must close it.
func Open(ctx context.Context, r Runtime, id string) (*Root, error) {
	st, err := r.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", id, err)
	}
	var info struct {
		Pid int `json:"pid"`
	}
	for _, text := range st.GetInfo() {
		if json.Unmarshal([]byte(text), &info) == nil && info.Pid > 1 {
			return openProcess(info.Pid, id)
		}
	}
	return nil, fmt.Errorf("%w: the runtime does not report its process", ErrNoRoot)
}

// openProcess opens the root directory of a process. The process must belong to the container with the given ID.
// The descriptor of /proc/PID always refers to the same process, even if the PID is used again for another one. So
// every check applies to the process whose root directory is opened.
func openProcess(pid int, id string) (*Root, error) {
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	defer unix.Close(proc)
	groups, err := readAt(proc, "cgroup")
	if err != nil || !belongsTo(groups, id) {
		return nil, fmt.Errorf("%w: process %d does not belong to container %s", ErrNoRoot, pid, id)
	}
	if same, err := sharesMounts(proc); err != nil || same {
		return nil, fmt.Errorf("%w: it has no mount namespace of its own", ErrNoRoot)
	}
	status, err := readAt(proc, "status")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	u, err := parseUser(status)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	fd, err := unix.Openat(proc, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRoot, err)
	}
	root := newRoot(fd)
	root.user = u
	return root, nil
}

// At returns a Root for a directory of the host. New files belong to this process.
func At(dir string) (*Root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return newRoot(fd), nil
}

func newRoot(fd int) *Root {
	return &Root{dir: os.NewFile(uintptr(fd), "/"), path: "/proc/self/fd/" + strconv.Itoa(fd)}
}

// Close releases the Root.
func (r *Root) Close() error { return r.dir.Close() }

// maxText is the maximum size of a file of /proc that is read.
const maxText = 64 << 10

func readAt(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxText))
}

// belongsTo reports whether a process with the given /proc/PID/cgroup is in a cgroup of a container.
func belongsTo(cgroups []byte, id string) bool {
	return len(id) >= minID && bytes.Contains(cgroups, []byte(id))
}

// minID is the minimum length of a container ID. Runtimes use 64 digits.
const minID = 12

// sharesMounts reports whether a process is in the mount namespace of this process.
func sharesMounts(proc int) (bool, error) {
	var its, own unix.Stat_t
	if err := unix.Fstatat(proc, "ns/mnt", &its, 0); err != nil {
		return false, err
	}
	if err := unix.Stat("/proc/self/ns/mnt", &own); err != nil {
		return false, err
	}
	return its.Ino == own.Ino && its.Dev == own.Dev, nil
}
