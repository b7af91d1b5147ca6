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
	*Links
	grace time.Duration
	log   *slog.Logger

	mu       sync.Mutex
	removals map[types.UID]time.Time // when the directories of released pods are removed
	waiting  bool                    // a timer will call removeDue
}

// removedMark is the file in the log directory of a removed pod.
const removedMark = ".removed"

// NewLogs returns Logs for the directories of a configuration. The directory of a pod is kept for containerLogMonitorInterval, as
// rotated logs are.
func NewLogs(c *config.Config, log *slog.Logger) *Logs {
	return &Logs{Links: &Links{Dir: c.Dirs.LogLinks, Logs: c.Kubelet.PodLogsDir}, log: log,
		grace: c.Kubelet.ContainerLogMonitorInterval.Duration, removals: map[types.UID]time.Time{}}
}

// Name returns the name of the hook.
func (*Logs) Name() string { return "logs" }

// Retire marks the log of a removed container as one of a removed pod, whose directory will be released.
func (l *Logs) Retire(log string) error {
	rest, below := strings.CutPrefix(log, l.Logs+"/")
	dir, _, _ := strings.Cut(rest, "/")
	if !below || uidOf(dir) == "" {
		return fmt.Errorf("%s is not below %s", log, l.Logs)
	}
	return l.mark(dir)
}

func (l *Logs) mark(dir string) error {
	f, err := os.OpenFile(filepath.Join(l.Logs, dir, removedMark), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark the logs of a removed pod: %w", err)
	}
	return f.Close()
}

// Prepare removes the logs of an earlier pod with the same UID.
func (l *Logs) Prepare(ctx context.Context, pod *v1.Pod) error {
	dir := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	if _, err := os.Lstat(filepath.Join(l.Logs, dir, removedMark)); err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.removals, pod.UID)
	return l.remove(ctx, func(uid types.UID) bool { return uid == pod.UID })
}

// Release removes the pod's log directory, <namespace>_<name>_<uid>, after the grace time. It removes the directory at once if the
// directory cannot be marked.
func (l *Logs) Release(ctx context.Context, uid types.UID) error {
	dirs, err := l.list(func(u types.UID) bool { return u == uid })
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dir := range dirs {
		err = errors.Join(err, l.mark(dir))
	}
	if len(dirs) == 0 || err != nil {
		delete(l.removals, uid)
		return l.remove(ctx, func(u types.UID) bool { return u == uid })
	}
	if _, released := l.removals[uid]; !released {
		l.removals[uid] = time.Now().Add(l.grace)
		l.wait()
	}
	return nil
}

// wait calls removeDue when the next removal is due. The caller holds mu.
func (l *Logs) wait() {
	if l.waiting || len(l.removals) == 0 {
		return
	}
	first := time.Now().Add(l.grace)
	for _, at := range l.removals {
		if at.Before(first) {
			first = at
		}
	}
	l.waiting = true
	time.AfterFunc(time.Until(first), func() {
		l.mu.Lock()
		l.waiting = false
		l.mu.Unlock()
		l.removeDue(context.Background(), time.Now())
	})
}

// removeDue removes the logs whose grace time has ended. Sweep tries again after a failure.
func (l *Logs) removeDue(ctx context.Context, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := map[types.UID]bool{}
	for uid, at := range l.removals {
		if !at.After(now) {
			due[uid] = true
			delete(l.removals, uid)
		}
	}
	if len(due) > 0 {
		if err := l.remove(ctx, func(uid types.UID) bool { return due[uid] }); err != nil {
			l.log.Warn("some logs of removed pods could not be removed", "error", err)
		}
	}
	l.wait()
}

// Flush removes the logs of all released pods at once.
func (l *Logs) Flush(ctx context.Context) { l.removeDue(ctx, time.Now().Add(l.grace+time.Second)) }

// FlushThen returns a function that calls Flush and then f.
func (l *Logs) FlushThen(f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		l.Flush(ctx)
		f(ctx)
	}
}

// Sweep removes the log directories, and the links, of the pods that need not be kept, as decided by the given function. It also
// removes links whose log no longer exists. It does not remove the logs of pods that were released less than the grace time ago.
func (l *Logs) Sweep(ctx context.Context, keep func(types.UID) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	unwanted := func(uid types.UID) bool {
		_, released := l.removals[uid]
		return !released && !keep(uid)
	}
	return errors.Join(l.removeDirs(unwanted), l.Links.Sweep(ctx, func(uid types.UID) bool { return !unwanted(uid) }))
}

// remove removes the directories and links of pods. The caller holds mu.
func (l *Logs) remove(ctx context.Context, unwanted func(types.UID) bool) error {
	return errors.Join(l.removeDirs(unwanted), l.Links.RemovePods(ctx, unwanted))
}

func (l *Logs) removeDirs(unwanted func(types.UID) bool) error {
	dirs, err := l.list(unwanted)
	errs := []error{err}
	for _, dir := range dirs {
		errs = append(errs, mounts.RemoveAll(filepath.Join(l.Logs, dir)))
	}
	return errors.Join(errs...)
}

// list returns the names of the log directories of pods, as selected by the given function.
func (l *Logs) list(selected func(types.UID) bool) (dirs []string, err error) {
	entries, err := os.ReadDir(l.Logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the pods' log directories: %w", err)
	}
	for _, e := range entries {
		if uid := uidOf(e.Name()); uid != "" && e.IsDir() && selected(uid) {
			dirs = append(dirs, e.Name())
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
