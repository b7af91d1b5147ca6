package podlogs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/internal/untrusted"
)

// A Quota limits the size of each pod's logs. It deletes the oldest rotated files, also those that another program has
// rotated. It deletes no active file, neither of a container's current attempt nor of its previous attempt. The size of
// these files is limited by containerLogMaxSize.
type Quota struct {
	Dir     string // the directory with the logs of all pods
	Bytes   int64  // maximum size of one pod's logs; 0 means no limit
	Workers int    // number of pods that are scanned at the same time
	Every   time.Duration
	Log     *slog.Logger
}

// Limits of a scan. A pod may mount the log directory and create any number of files there.
const (
	maxContainers = 500
	maxFiles      = 5000 // limit for one container
)

// Run enforces the quota until ctx ends.
func (q *Quota) Run(ctx context.Context) error {
	if q.Bytes <= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(q.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.scan(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *Quota) scan(ctx context.Context) {
	pods, err := os.ReadDir(q.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		q.Log.Warn("cannot list the log directories of pods", "error", err)
	}
	var g errgroup.Group
	g.SetLimit(max(q.Workers, 1))
	for _, p := range pods {
		if !p.IsDir() || ctx.Err() != nil {
			continue
		}
		g.Go(func() error {
			if err := q.enforceFor(p.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				q.Log.Warn("cannot enforce the quota of a pod's logs", "directory", p.Name(), "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // none fails
}

// A rotatedLog is one rotated file in the directory dir, which is relative to Quota.Dir.
type rotatedLog struct {
	dir, name, stamp string
	size             int64
}

// enforceFor deletes the oldest rotated logs of a pod until its logs are within the quota.
func (q *Quota) enforceFor(pod string) error {
	containers, err := listDir(q.Dir, pod, maxContainers)
	if err != nil {
		return err
	}
	var logs []rotatedLog
	sum := int64(0)
	for _, c := range containers {
		found, size, err := measureLogs(q.Dir, filepath.Join(pod, c))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // the directory was removed meanwhile, or does not belong to a container
		}
		if err != nil {
			return err
		}
		logs, sum = append(logs, found...), sum+size
	}
	if sum <= q.Bytes {
		return nil
	}
	sorting.By(logs, func(a, b rotatedLog) int {
		return cmp.Or(strings.Compare(a.stamp, b.stamp), strings.Compare(a.name, b.name))
	})
	for _, o := range logs {
		if sum <= q.Bytes {
			break
		}
		if err := removeLog(q.Dir, o); err != nil {
			return err
		}
		sum -= o.size
	}
	return nil
}

// measureLogs returns a container's rotated logs, and the bytes that all its logs use on disk.
func measureLogs(root, sub string) (rotated []rotatedLog, sum int64, err error) {
	dir, err := untrusted.OpenDir(root, sub)
	if err != nil {
		return nil, 0, err
	}
	defer dir.Close()
	list, err := dir.Readdirnames(maxFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	for _, name := range list {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		size := int64(st.Blocks) * 512
		sum += size
		base, stamp, ok := strings.Cut(name, ".log.")
		if ok && base != "" && isStamp(strings.TrimSuffix(stamp, ".gz")) {
			rotated = append(rotated, rotatedLog{dir: sub, name: name, stamp: stamp, size: size})
		}
	}
	return rotated, sum, nil
}

func removeLog(root string, o rotatedLog) error {
	dir, err := untrusted.OpenDir(root, o.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), o.name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", o.name, err)
	}
	return nil
}

// listDir returns up to limit names of a directory.
func listDir(root, sub string, limit int) ([]string, error) {
	dir, err := untrusted.OpenDir(root, sub)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.Readdirnames(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}
