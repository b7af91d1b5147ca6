package room

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

// An Amount is what is free of something. One whose Total is 0 is not known, or unbounded.
type Amount struct{ Free, Total uint64 }

// A Disk is a file system.
type Disk struct {
	Path          string
	Device        uint64 // names the file system while it is mounted
	Bytes, Inodes Amount // what an ordinary user may take
}

// A Room is what was left at one time.
type Room struct {
	At     time.Time
	Memory Amount // bytes of the machine that can be had without swapping
	// Pods is the memory that all pods together may have yet, 0 when they are at their limit and
	// thrash. Without a limit of their own that is the machine's, less what they have.
	Pods Amount
	// Node has volumes and logs, Image the layers of images, Container what containers
	// write. Two of them may be the same. Device is 0 where it is not known.
	Node, Image, Container Disk
	PIDs                   Amount // processes and threads
}

// Config is what a Reader needs.
type Config struct {
	Host    *host.Host
	Cgroups cgroup.Reader
	Pods    string // path of the cgroup of all pods
	Node    string // a path on the disk of volumes
	// Runtime gives paths on the disks of images and of containers.
	Runtime func(context.Context) (image, container string, err error)
}

// A Reader reads. Its methods may be called at once.
type Reader struct{ c Config }

// New reads nothing yet.
func New(c Config) *Reader { return &Reader{c} }

// Memory reads the memory only: Memory and Pods of a Room. Pods is unknown before any pod
// has run.
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
	return machine, Amount{limit - min(limit, r.c.Cgroups.Needed(r.c.Pods, f)), limit}, nil
}

// Now reads everything. What cannot be read is unknown; of that err tells.
func (r *Reader) Now(ctx context.Context) (out Room, err error) {
	out.At = time.Now()
	var errs [4]error
	out.Memory, out.Pods, errs[0] = r.Memory(ctx)
	out.Node, errs[1] = disk(r.c.Node)
	if image, container, err := r.c.Runtime(ctx); err != nil {
		errs[2] = fmt.Errorf("disks of the runtime: %w", err)
	} else if out.Image, errs[2] = disk(image); container == image {
		out.Container = out.Image
	} else if out.Container, err = disk(container); err != nil {
		errs[2] = errors.Join(errs[2], err)
	}
	p, err := r.c.Host.Processes()
	if errs[3] = err; err == nil {
		out.PIDs = Amount{p.Max - min(p.Max, p.Now), p.Max}
	}
	return out, errors.Join(errs[:]...)
}

func disk(path string) (Disk, error) {
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
	return Disk{Path: path, Device: uint64(st.Dev), Bytes: Amount{s.Bavail * size, s.Blocks * size}, Inodes: Amount{s.Ffree, s.Files}}, nil
}
