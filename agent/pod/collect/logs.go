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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/config"
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
}

// removedMark is the file in the log directory of a removed pod.
const removedMark = ".removed"

// NewLogs returns Logs for the directories of a configuration. The directory of a pod is kept for containerLogMonitorInterval, as
// rotated logs are.
func NewLogs(c *config.Config, log *slog.Logger) *Logs {
	return &Logs{Links: Links{Dir: c.Dirs.LogLinks, Logs: c.Kubelet.PodLogsDir}, log: log,
		grace: c.Kubelet.ContainerLogMonitorInterval.Duration}
}

// Name returns the name of the hook.
func (*Logs) Name() string { return "logs" }

// Retire marks the log of a removed container as one of a removed pod, whose directory will be released.
func (l *Logs) Retire(log string) error {
	if l.podOf(log) == "" {
		return errors.ErrUnsupported
	}
	return mark(filepath.Dir(filepath.Dir(log)))
}

// mark marks a directory as that of a removed pod. It follows no symbolic link, because pods may be able to write there.
func mark(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, removedMark), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func isMarked(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, removedMark))
	return err == nil
}

// Prepare removes the logs of an earlier pod with the same UID.
func (l *Logs) Prepare(_ context.Context, pod *v1.Pod) error {
	if !isMarked(filepath.Join(l.Logs, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))) {
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
		err = errors.Join(err, mark(dir))
	}
	if len(dirs) == 0 || err != nil {
		return l.remove(only(uid))
	}
	l.removeLater(uid)
	return nil
}

// removeLater removes the logs of a removed pod after the grace time. It does nothing if a pod with the same UID has returned.
func (l *Logs) removeLater(uid types.UID) {
	time.AfterFunc(l.grace, func() { l.removeMarked(func(d string, u types.UID) bool { return u == uid && isMarked(d) }) })
}

func (l *Logs) removeMarked(marked func(dir string, uid types.UID) bool) {
	if err := l.remove(marked); err != nil {
		l.log.Warn("the logs of some removed pods could not be removed", "error", err)
	}
}

// Flush removes the logs of all released pods at once.
func (l *Logs) Flush() { l.removeMarked(func(d string, _ types.UID) bool { return isMarked(d) }) }

// FlushThen returns a function that calls Flush and then f.
func (l *Logs) FlushThen(f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		l.Flush()
		f(ctx)
	}
}

// Sweep removes the log directories of the pods that need not be kept, as decided by the given function. The logs of released
// pods, also of those that an earlier agent has released, are removed after the grace time. Sweep also removes links whose log
// no longer exists.
func (l *Logs) Sweep(_ context.Context, keep func(types.UID) bool) error {
	return l.remove(func(d string, uid types.UID) bool {
		if keep(uid) {
			return false
		}
		if isMarked(d) {
			l.removeLater(uid)
			return false
		}
		return true
	})
}

// remove removes the directories of pods, and the links to logs that no longer exist.
func (l *Logs) remove(unwanted func(dir string, uid types.UID) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	dirs, err := l.list(unwanted)
	for _, dir := range dirs {
		err = errors.Join(err, mounts.RemoveAll(dir))
	}
	return errors.Join(err, l.Links.Sweep())
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
