package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// longestLink is what ext4 takes as a name, less the suffix.
const (
	linkSuffix  = ".log"
	longestLink = 255 - len(linkSuffix)
)

// Links are symbolic links to the logs of containers, by which log shippers learn pod,
// namespace, container and ID: <pod>_<namespace>_<container>-<id>.log, as a kubelet
// makes them. It is a hook that removes those of a pod that is gone.
// https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-location-node
type Links struct {
	Dir  string // /var/log/containers
	Logs string // of all pods: links that lead elsewhere are not islet's

	mu sync.Mutex
	of map[types.UID][]string // names of links, by pod; nil: Dir was not read yet
}

// Name is the hook's.
func (*Links) Name() string { return "log links" }

// Link makes the link of a container that has a log.
func (l *Links) Link(pod *v1.Pod, container, id, log string) error {
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of links to logs: %w", err)
	}
	name := fmt.Sprintf("%s_%s_%s-%s", pod.Name, pod.Namespace, container, id)
	name = name[:min(len(name), longestLink)] + linkSuffix
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid := l.owner(log); l.of != nil && !slices.Contains(l.of[uid], name) { // before it is there: what fails leads nowhere
		l.of[uid] = append(l.of[uid], name)
	}
	path := filepath.Join(l.Dir, name)
	err := os.Symlink(log, path)
	if errors.Is(err, fs.ErrExist) {
		if to, read := os.Readlink(path); read == nil && to == log {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("link the log of container %s: %w", container, err)
	}
	return nil
}

// Unlink removes the link of a container that is removed, by its log.
func (l *Links) Unlink(log string) error {
	return l.removeOf(l.owner(log), func(to string) bool { return to == log })
}

// Release removes the links of a pod.
func (l *Links) Release(_ context.Context, uid types.UID) error {
	return l.removeOf(uid, func(to string) bool { return l.owner(to) == uid })
}

// Sweep removes the links to logs that are no more, and those of pods that keep does
// not want.
func (l *Links) Sweep(_ context.Context, keep func(types.UID) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		return err
	}
	var errs []error
	for uid := range l.of {
		errs = append(errs, l.remove(uid, func(to string) bool {
			_, err := os.Stat(to)
			return errors.Is(err, fs.ErrNotExist) || !keep(l.owner(to))
		}))
	}
	return errors.Join(errs...)
}

// owner is the pod whose log a link leads to; empty: it leads elsewhere.
func (l *Links) owner(to string) types.UID {
	rest, below := strings.CutPrefix(to, l.Logs+"/")
	dir, _, _ := strings.Cut(rest, "/")
	part := strings.Split(dir, "_")
	if !below || len(part) != 3 {
		return ""
	}
	return types.UID(part[2])
}

// read finds the links that are there. The caller holds mu.
func (l *Links) read() error {
	names, err := readNames(l.Dir)
	if err != nil {
		return fmt.Errorf("list the links to logs: %w", err)
	}
	l.of = map[types.UID][]string{}
	for _, name := range names {
		to, err := os.Readlink(filepath.Join(l.Dir, name))
		if uid := l.owner(to); err == nil && uid != "" { // else no link, gone meanwhile, or another program's
			l.of[uid] = append(l.of[uid], name)
		}
	}
	return nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (l *Links) removeOf(uid types.UID, unwanted func(to string) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		if err := l.read(); err != nil {
			return err
		}
	}
	return l.remove(uid, unwanted)
}

// remove takes away a pod's links to logs that are unwanted. The caller holds mu.
func (l *Links) remove(uid types.UID, unwanted func(to string) bool) error {
	var left []string
	var errs []error
	for _, name := range l.of[uid] {
		path := filepath.Join(l.Dir, name)
		to, err := os.Readlink(path)
		if err != nil || l.owner(to) != uid {
			continue // it is gone, or another program's now
		}
		if unwanted(to) {
			if err = os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			errs = append(errs, err)
		}
		left = append(left, name)
	}
	l.of[uid] = left
	if len(left) == 0 {
		delete(l.of, uid)
	}
	return errors.Join(errs...)
}
