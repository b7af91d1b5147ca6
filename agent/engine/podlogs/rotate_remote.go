package podlogs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/untrusted"
)

// View reports the observed pods. *observe.Observer implements it.
type View interface {
	UIDs() []types.UID
	Pod(types.UID) plan.Observed
}

// Config is the input of New.
type Config struct {
	View     View
	Reopen   func(ctx context.Context, container string) error // makes the runtime reopen the log
	Dir      string                                            // the directory with the logs of all pods
	MaxSize  int64                                             // bytes above which a log is rotated; 0 or less disables rotation
	MaxFiles int                                               // number of files of one container, including the active one
	Workers  int                                               // number of rotations at the same time
	Every    time.Duration
	Log      *slog.Logger
}

// A Rotator rotates the logs of running containers.
type Rotator struct{ c Config }

// New returns a Rotator. It starts nothing.
func New(c Config) *Rotator { return &Rotator{c} }

// Run rotates logs until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	if r.c.MaxSize <= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(r.c.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.scan(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// scan rotates all logs that are too large.
func (r *Rotator) scan(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(max(r.c.Workers, 1))
	for _, uid := range r.c.View.UIDs() {
		seen := r.c.View.Pod(uid)
		sb, _ := seen.Sandbox()
		for _, c := range seen.Containers {
			if c.State != plan.Running || c.LogPath == "" {
				continue
			}
			g.Go(func() error {
				if err := r.rotate(ctx, c.ID, c.LogPath); err != nil && ctx.Err() == nil {
					r.c.Log.Warn("cannot rotate the log of a container",
						"pod", sb.Namespace+"/"+sb.Name, "uid", uid, "container", c.Name, "log", c.LogPath, "error", err)
				}
				return nil
			})
		}
	}
	_ = g.Wait() // none fails
}

// stampFormat is a kubelet's suffix of a rotated log. Names with this suffix sort by age.
const stampFormat = "20060102-150405"

// rotate rotates one log if it is too large. If the log is missing, it makes the runtime reopen it.
func (r *Rotator) rotate(ctx context.Context, id, path string) error {
	sub, err := filepath.Rel(r.c.Dir, path)
	if err != nil || !filepath.IsLocal(sub) {
		return fmt.Errorf("the log is not below %s", r.c.Dir)
	}
	dir, err := untrusted.OpenDir(r.c.Dir, filepath.Dir(sub))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the pod is being removed
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	base := filepath.Base(sub)
	var st unix.Stat_t
	switch err := unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
		return r.c.Reopen(ctx, id)
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("the log is not a regular file")
	case st.Size <= r.c.MaxSize:
		return nil
	}
	old, err := listRotated(dir, base)
	if err != nil {
		return err
	}
	if old, err = deleteOldest(dir, old, r.c.MaxFiles-2); err != nil { // the active file, and the file that is created below, count as well
		return err
	}
	if err := r.compressAll(ctx, dir, old, path); err != nil {
		return err
	}
	aside, fd := nextName(base, old), int(dir.Fd())
	if err := unix.Renameat(fd, base, fd, aside); err != nil {
		return err
	}
	if err := r.c.Reopen(ctx, id); err != nil {
		return errors.Join(fmt.Errorf("make the runtime reopen the log: %w", err),
			unix.Renameat2(fd, aside, fd, base, unix.RENAME_NOREPLACE))
	}
	return nil
}

// compressAll compresses the rotated files of the log at path. The parameter old contains their names, oldest first. If a file is left
// uncompressed, compressAll logs it once, while the file is the newest rotated file.
func (r *Rotator) compressAll(ctx context.Context, dir *os.File, old []string, path string) error {
	for i, name := range old {
		if strings.HasSuffix(name, ".gz") {
			continue
		}
		err := compress(ctx, dir, name, r.sizeLimit())
		if err != nil && !errors.Is(err, errTooLarge) {
			return fmt.Errorf("compress %s: %w", name, err)
		}
		if err != nil && i == len(old)-1 {
			r.c.Log.Warn("a rotated log is left uncompressed", "log", filepath.Join(filepath.Dir(path), name), "reason", err)
		}
	}
	return nil
}

// sizeLimit returns the maximum size of a file that is compressed. A container may write more than MaxSize until its log is rotated.
func (r *Rotator) sizeLimit() int64 { return max(minSizeLimit, 2*r.c.MaxSize) }

// listRotated returns the rotated files of a log, oldest first. It deletes the temporary files
// of interrupted compressions.
func listRotated(dir *os.File, base string) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var old []string
	for _, name := range names {
		at, ok := strings.CutPrefix(name, base+".")
		if at, broken := strings.CutSuffix(at, ".gz"+tempSuffix); ok && broken && isStamp(at) {
			if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
				return nil, err
			}
		} else if ok && isStamp(strings.TrimSuffix(at, ".gz")) {
			old = append(old, name)
		}
	}
	slices.Sort(old)
	return old, nil
}

// nextName returns a name for the next rotated file that sorts after the existing names, even if the clock has not
// advanced or was set back.
func nextName(base string, old []string) string {
	at := time.Now().UTC()
	if len(old) > 0 {
		last, _ := time.Parse(stampFormat, strings.TrimSuffix(strings.TrimPrefix(old[len(old)-1], base+"."), ".gz"))
		if at.Before(last.Add(time.Second)) {
			at = last.Add(time.Second)
		}
	}
	return base + "." + at.Format(stampFormat)
}

func isStamp(s string) bool {
	_, err := time.Parse(stampFormat, s)
	return err == nil
}

// deleteOldest deletes the oldest files, but keeps the given number of newest ones. It returns the files that are left.
func deleteOldest(dir *os.File, old []string, keep int) ([]string, error) {
	for len(old) > max(keep, 0) {
		if err := unix.Unlinkat(int(dir.Fd()), old[0], 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("remove %s: %w", old[0], err)
		}
		old = old[1:]
	}
	return old, nil
}

// tempSuffix is the suffix of the file to which a compression writes.
const tempSuffix = ".tmp"

// minSizeLimit is the lower bound of sizeLimit.
const minSizeLimit = 1 << 30

// errTooLarge is the error of a file whose compression would occupy a worker for a long time.
var errTooLarge = errors.New("the file is too large or consists of holes")

// compress replaces the file name by name.gz. It returns errTooLarge if the file is larger than limit, or consists of holes. A pod that
// mounts the log directory can create such a file without using the disk.
func compress(ctx context.Context, dir *os.File, name string, limit int64) (err error) {
	fd := int(dir.Fd())
	in, err := openat(fd, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.Join(errors.New("it is not a regular file"), err)
	}
	if used := st.Blocks * 512; st.Size > limit || used < st.Size/100 {
		return errTooLarge
	}
	out, err := openat(fd, name+".gz"+tempSuffix, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	n, err := io.Copy(z, io.LimitReader(untrusted.CancelableReader(ctx, in), limit+1))
	if n > limit {
		err = errors.New("it grows")
	}
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return errors.Join(err, unix.Unlinkat(fd, name+".gz"+tempSuffix, 0))
	}
	if err := unix.Renameat(fd, name+".gz"+tempSuffix, fd, name+".gz"); err != nil {
		return err
	}
	return unix.Unlinkat(fd, name, 0)
}

// openat opens a file in a directory. It fails for a symbolic link.
func openat(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
