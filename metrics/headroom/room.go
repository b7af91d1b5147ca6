package headroom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/host"
)

// An Amount contains the free and the total amount of a resource. The total is 0 if it is unknown or unlimited.
type Amount struct{ Free, Total uint64 }

// A Disk contains the free and the total amounts of a file system.
type Disk struct {
	Path          string
	Device        uint64 // identifies the file system while it is mounted
	Bytes, Inodes Amount // the amounts for unprivileged users
}

// A Room contains the free and total amounts of all resources at one time.
type Room struct {
	At     time.Time
	Memory Amount // of the machine, in bytes; the free amount is the memory that is available without swapping
	// Pods is the memory of all pods together, in bytes. The total is the limit of all pods, or the machine's memory if they have no limit.
	// The free amount is the total minus the memory that the pods need. It is 0 when the pods thrash at their limit.
	Pods Amount
	// These are the disk of volumes and logs, the disk of image layers, and the disk of the writable layers of containers. One disk may
	// have several of these roles. For an unknown disk, Device is 0.
	Node, Image, Container Disk
	PIDs                   Amount // processes and threads
}

// Config is the configuration of a Reader.
type Config struct {
	Host    *host.Host
	Cgroups cgroup.Reader
	Pods    string // path of the cgroup of all pods
	Node    string // a path on the disk of volumes
	// Runtime returns a path on the disk of images and a path on the disk of containers.
	Runtime func(context.Context) (image, container string, err error)
}

// A Reader reads the free amounts of all resources. Its methods are safe for concurrent use.
type Reader struct{ c Config }

// New returns a Reader. It reads nothing.
func New(c Config) *Reader { return &Reader{c} }

// Memory reads only the memory of the machine and of all pods. The amount for the pods is zero before the first pod runs.
func (r *Reader) Memory(ctx context.Context) (machine, pods Amount, err error) {
	m, err := r.c.Host.Memory(ctx)
	if err != nil {
		return machine, pods, err
	}
	machine = Amount{m.Available, m.Total}
	f, err := r.c.Cgroups.Read(r.c.Pods)
	if errors.Is(err, fs.ErrNotExist) {
		return machine, pods, nil
	}
	if err != nil {
		return machine, pods, err
	}
	limit := m.Total
	if f.Limit > 0 {
		limit = min(limit, f.Limit)
	}
	return machine, Amount{limit - min(limit, r.c.Cgroups.NeededMemory(r.c.Pods, f)), limit}, nil
}

// Now reads all amounts. An amount that cannot be read is zero, and the error contains the reason.
func (r *Reader) Now(ctx context.Context) (out Room, err error) {
	out.At = time.Now()
	var errs [4]error
	out.Memory, out.Pods, errs[0] = r.Memory(ctx)
	out.Node, errs[1] = measureDisk(r.c.Node)
	if image, container, err := r.c.Runtime(ctx); err != nil {
		errs[2] = fmt.Errorf("disks of the runtime: %w", err)
	} else {
		out.Image, errs[2] = measureDisk(image)
		out.Container = out.Image
		if container != image {
			out.Container, err = measureDisk(container)
			errs[2] = errors.Join(errs[2], err)
		}
	}
	p, err := r.c.Host.Processes()
	errs[3] = err
	if err == nil {
		out.PIDs = Amount{p.Max - min(p.Max, p.Now), p.Max}
	}
	return out, errors.Join(errs[:]...)
}

func measureDisk(path string) (Disk, error) {
	var s unix.Statfs_t
	var st unix.Stat_t
	err := unix.Statfs(path, &s)
	if err == nil {
		err = unix.Stat(path, &st)
	}
	if err != nil {
		return Disk{}, &fs.PathError{Op: "measure the disk of", Path: path, Err: err}
	}
	size := uint64(s.Bsize)
	return Disk{
		Path: path, Device: uint64(st.Dev),
		Bytes: Amount{s.Bavail * size, s.Blocks * size}, Inodes: Amount{s.Ffree, s.Files},
	}, nil
}
