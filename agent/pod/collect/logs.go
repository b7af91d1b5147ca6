package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Logs is a hook that removes the log directory of a pod, and the links to its logs, some time after the pod is released.
// In this time log shippers read the last lines. A kubelet removes the logs of removed pods once a minute.
//
// A removed pod may return with the same UID, as a static pod does when its manifest returns. Its new containers have the
// paths of the earlier logs. So the directory of a removed pod is marked by a file, which also outlives the agent, and
// Prepare removes a marked directory.
type Logs struct {
	Links
	grace time.Duration
	log   *slog.Logger
	mu    sync.Mutex // a marked directory is removed before a new pod uses its path
	// timers has one timer for each released pod. The removal of the pod's directory stops the timer, because the pod may return and be
	// released again, and its new logs must stay for the whole grace time.
	timers map[types.UID]*time.Timer
}

// removedMark is the file in the log directory of a removed pod.
const removedMark = ".removed"

// NewLogs returns Logs for the directories of a configuration. The directory of a pod is kept for containerLogMonitorInterval, as
// rotated logs are.
func NewLogs(c *config.Config, log *slog.Logger) *Logs {
	return &Logs{Links: Links{Dir: c.Dirs.LogLinks, Logs: c.Kubelet.PodLogsDir}, log: log, timers: map[types.UID]*time.Timer{},
		grace: c.Kubelet.ContainerLogMonitorInterval.Duration}
}

// Name returns the name of the hook.
func (*Logs) Name() string { return "logs" }

// Retire marks the log of a removed container as one of a removed pod, whose directory will be released.
func (l *Logs) Retire(log string) error {
	dir := filepath.Dir(filepath.Dir(log))
	if l.podOf(log) == "" || filepath.Dir(dir) != l.Logs {
		return errors.ErrUnsupported
	}
	return l.mark(dir)
}

// mark marks the directory of a removed pod. It follows no symbolic link, because pods may be able to write to the directory of all logs.
func (l *Logs) mark(dir string) error {
	return l.atMark(dir, func(fd int) error {
		file, err := unix.Openat(fd, removedMark, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err == unix.EEXIST {
			return nil
		}
		if err != nil {
			return fmt.Errorf("create %s in %s: %w", removedMark, dir, err)
		}
		return unix.Close(file)
	})
}

func (l *Logs) isMarked(dir string) bool {
	return l.atMark(dir, func(fd int) error {
		var st unix.Stat_t
		return unix.Fstatat(fd, removedMark, &st, unix.AT_SYMLINK_NOFOLLOW)
	}) == nil
}

// atMark calls a function with the descriptor of a pod's directory.
func (l *Logs) atMark(dir string, do func(fd int) error) error {
	d, err := untrusted.OpenDir(l.Logs, filepath.Base(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return do(int(d.Fd()))
}

// Prepare removes the logs of an earlier pod with the same UID.
func (l *Logs) Prepare(_ context.Context, pod *v1.Pod) error {
	if !l.isMarked(filepath.Join(l.Logs, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))) {
		return nil
	}
	return l.remove(only(pod.UID))
}

func only(uid types.UID) func(string, types.UID) bool {
	return func(_ string, u types.UID) bool { return u == uid }
}

// Release removes the pod's log directory, <namespace>_<name>_<uid>, after the grace time. It removes the directory at once if it
// cannot mark the directory.
func (l *Logs) Release(_ context.Context, uid types.UID) error {
	dirs, err := l.list(only(uid))
	for _, dir := range dirs {
		err = errors.Join(err, l.mark(dir))
	}
	if err == nil && len(dirs) == 0 { // never made, or removed by another program
		return l.unlinkBelow(uid, l.Logs)
	}
	if err != nil {
		return l.remove(only(uid))
	}
	l.removeLater(uid)
	return nil
}

// removeLater removes the logs of a released pod after the grace time. A repeated call does not extend this time. It does nothing if a
// pod with the same UID has returned.
func (l *Logs) removeLater(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timers[uid] != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(l.grace, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.timers[uid] != timer { // it was stopped too late
			return
		}
		delete(l.timers, uid)
		l.warn(l.removeLocked(func(d string, u types.UID) bool { return u == uid && l.isMarked(d) }))
	})
	l.timers[uid] = timer
}

func (l *Logs) warn(err error) {
	if err != nil {
		l.log.Warn("the logs of some removed pods could not be removed", "error", err)
	}
}

// Flush removes the logs of all released pods at once.
func (l *Logs) Flush() {
	l.warn(l.remove(func(d string, _ types.UID) bool { return l.isMarked(d) }))
}

// FlushThen returns a function that calls Flush and then f.
func (l *Logs) FlushThen(f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		l.Flush()
		f(ctx)
	}
}

// Sweep removes the log directories of the pods that need not be kept, as decided by the given function. The logs of released
// pods, also of those that an earlier agent has released, are removed after the grace time. Sweep also removes links whose log
// no longer exists, as Links.Sweep does.
func (l *Logs) Sweep(_ context.Context, keep func(types.UID) bool) error {
	var released []types.UID
	err := l.remove(func(d string, uid types.UID) bool {
		if keep(uid) {
			return false
		}
		if l.isMarked(d) {
			released = append(released, uid)
			return false
		}
		return true
	})
	for _, uid := range released {
		l.removeLater(uid)
	}
	return errors.Join(err, l.Links.Sweep())
}

// remove removes the directories of pods, and the links to the logs in them. The links of other pods stay.
func (l *Logs) remove(unwanted func(dir string, uid types.UID) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removeLocked(unwanted)
}

func (l *Logs) removeLocked(unwanted func(dir string, uid types.UID) bool) error {
	dirs, err := l.list(unwanted)
	for _, dir := range dirs {
		uid := uidOf(filepath.Base(dir))
		if timer := l.timers[uid]; timer != nil {
			timer.Stop()
			delete(l.timers, uid)
		}
		failed := mounts.RemoveAll(dir)
		if failed == nil {
			failed = l.unlinkBelow(uid, dir)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// list returns the paths of the log directories of pods, as selected by the given function.
func (l *Logs) list(selected func(dir string, uid types.UID) bool) (dirs []string, err error) {
	entries, err := os.ReadDir(l.Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the pods' log directories: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(l.Logs, e.Name())
		if uid := uidOf(e.Name()); uid != "" && e.IsDir() && selected(dir, uid) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// uidOf returns the UID in the name of a pod's log directory, or "" for another name.
func uidOf(dir string) types.UID {
	part := strings.Split(dir, "_") // namespace, name and UID contain no underscore
	if len(part) != 3 {
		return ""
	}
	return types.UID(part[2])
}
