package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/mounts"
)

// removeContainer removes a container's log with its rotated parts and its link, and then the container. Only the container names the path
// of its log, so a container whose log cannot be removed now stays, and the removal is repeated. If the pod is removed too, the logs stay
// until the pod has been released, so that log shippers can read the last lines.
func (e *Executor) removeContainer(ctx context.Context, in plan.Input, a plan.Action) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var left error
	for _, c := range in.Observed.Containers {
		if c.ID != a.ID || c.LogPath == "" || a.KeepsLog && e.cfg.Links.Retire(c.LogPath) == nil {
			continue
		}
		left = errors.Join(left, removeLog(ctx, c.LogPath), e.cfg.Links.Unlink(c.LogPath))
	}
	if left != nil && !a.KeepsLog && isTransient(left) {
		return fmt.Errorf("remove container %s (%s): %w", a.Container, a.ID, left)
	}
	if _, err := e.cfg.Runtime.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: a.ID}); ignoreNotFound(err) != nil {
		return fmt.Errorf("remove container %s (%s): %w", a.Container, a.ID, errors.Join(err, left))
	}
	return errors.Join(left, e.cfg.Lifecycle.Forget(a.ID))
}

// isTransient reports whether a log can probably be removed later. After any other error the container is removed without its log, because
// it would otherwise stay for ever: the disk fails, a pod has replaced the directories of the log, or somebody has made the log immutable.
func isTransient(err error) bool {
	for _, e := range []error{
		context.Canceled, context.DeadlineExceeded, unix.EBUSY, unix.EINTR, unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// namesPerRead is the maximum number of names that removeLog keeps in memory.
const namesPerRead = 1000

// removeLog removes a log and its rotated parts. A pod that mounts the host's log directory may have replaced the directories of the
// log by symlinks, and then removeLog returns an error and removes nothing. A missing log is not an error.
func removeLog(ctx context.Context, path string) error {
	return eachLog(ctx, path, func(dir *os.File, name string) error {
		if strings.HasPrefix(name, filepath.Base(path)) {
			return mounts.RemoveAt(dir, name)
		}
		return nil
	})
}

// eachLog calls visit for each file in the directory of a container's log, and returns the first error. It does nothing if the directory
// does not exist.
func eachLog(ctx context.Context, path string, visit func(dir *os.File, name string) error) (err error) {
	root, name := untrusted.SplitLog(path)
	dir, err := untrusted.OpenDir(root, filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the log's directory: %w", err)
	}
	defer dir.Close()
	for ctx.Err() == nil {
		names, end := dir.Readdirnames(namesPerRead)
		for _, n := range names {
			err = cmp.Or(err, visit(dir, n))
		}
		if end == io.EOF {
			return err
		}
		if end != nil {
			return fmt.Errorf("read the log's directory: %w", end)
		}
	}
	return cmp.Or(err, ctx.Err())
}

// attemptAfterLogs returns the number of the first attempt of a container of which the runtime has no record. It is at least the given
// number. There may be logs of earlier attempts, whose records are lost, for example because the node has moved to another runtime. The
// attempt must not continue such a log, so it gets the next number, as with a kubelet. The newest of these logs stays. The others are
// removed, because no record leads to them any more.
func attemptAfterLogs(ctx context.Context, path string, least uint32) uint32 {
	newest := int64(-1)
	err := eachLog(ctx, path, func(_ *os.File, name string) error {
		newest = max(newest, attemptOfLog(name))
		return nil
	})
	if err == nil && newest > 0 {
		eachLog(ctx, path, func(dir *os.File, name string) error { // what stays is removed with the pod
			if n := attemptOfLog(name); n >= 0 && n < newest {
				return mounts.RemoveAt(dir, name)
			}
			return nil
		})
	}
	return max(least, uint32(newest+1))
}

// maxLogAttempt limits the attempts of logs, which a pod may have written.
const maxLogAttempt = 1 << 30

// attemptOfLog returns the attempt that has written a log or a rotated part of a log, or -1 for any other file.
func attemptOfLog(name string) int64 {
	number, rest, isLog := strings.Cut(name, ".log")
	n, err := strconv.ParseInt(number, 10, 64)
	if !isLog || err != nil || n < 0 || n > maxLogAttempt || rest != "" && rest[0] != '.' {
		return -1
	}
	return n
}
