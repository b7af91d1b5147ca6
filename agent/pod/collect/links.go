package collect

import (
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

// longestLink is the maximum length of a link's name without the suffix, given ext4's limit for file names.
const (
	linkSuffix  = ".log"
	longestLink = 255 - len(linkSuffix)
)

// Links creates symbolic links to the logs of containers. Their names are <pod>_<namespace>_<container>-<id>.log, as
// in a kubelet. From these names, log shippers read the pod, the namespace, the container and the container's ID.
// https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-location-node
type Links struct {
	Dir  string // /var/log/containers
	Logs string // directory of all pods' logs; a link that leads elsewhere belongs to another program

	mu    sync.Mutex
	byPod map[types.UID][]string // names of links by pod; nil until Dir has been read
}

// Link creates the link of a container that has a log.
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
	// The name is recorded before the link is created. Names without a link are skipped when the links are
	// removed.
	if uid := l.podOf(log); l.byPod != nil && !slices.Contains(l.byPod[uid], name) {
		l.byPod[uid] = append(l.byPod[uid], name)
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

// Unlink removes the link to the log of a removed container.
func (l *Links) Unlink(log string) error {
	return l.removeOf(l.podOf(log), func(to string) bool { return to == log })
}

// unlinkBelow removes the links of a pod to the logs below a removed directory.
func (l *Links) unlinkBelow(uid types.UID, dir string) error {
	return l.removeOf(uid, func(to string) bool { return strings.HasPrefix(to, dir+"/") })
}

func (l *Links) removeOf(uid types.UID, unwanted func(to string) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPod == nil {
		if err := l.read(); err != nil {
			return err
		}
	}
	return l.remove(uid, unwanted)
}

// Sweep removes links whose log no longer exists. A container whose directory exists may run: its log does not exist for a moment
// while another program rotates the log, and its link is created only once.
func (l *Links) Sweep() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		return err
	}
	var errs []error
	for uid := range l.byPod {
		errs = append(errs, l.remove(uid, func(to string) bool { return isMissing(to) && isMissing(filepath.Dir(to)) }))
	}
	return errors.Join(errs...)
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// podOf returns the UID of the pod to which a link's target belongs. It returns "" if the target is not a pod's log.
func (l *Links) podOf(to string) types.UID {
	rest, below := strings.CutPrefix(to, l.Logs+"/")
	dir, _, _ := strings.Cut(rest, "/")
	if !below {
		return ""
	}
	return uidOf(dir)
}

// read reads the existing links. The caller holds mu.
func (l *Links) read() error {
	names, err := readNames(l.Dir)
	if err != nil {
		return fmt.Errorf("list the links to logs: %w", err)
	}
	l.byPod = map[types.UID][]string{}
	for _, name := range names {
		to, err := os.Readlink(filepath.Join(l.Dir, name))
		if uid := l.podOf(to); err == nil && uid != "" { // otherwise it is not a link, was removed meanwhile, or belongs to another program
			l.byPod[uid] = append(l.byPod[uid], name)
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

// remove removes a pod's links to unwanted targets, as decided by the given function. The caller holds mu.
func (l *Links) remove(uid types.UID, unwanted func(to string) bool) error {
	var left []string
	var errs []error
	for _, name := range l.byPod[uid] {
		path := filepath.Join(l.Dir, name)
		to, err := os.Readlink(path)
		if err != nil || l.podOf(to) != uid {
			continue // removed, or replaced by another program
		}
		if unwanted(to) {
			if err = os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			errs = append(errs, err)
		}
		left = append(left, name)
	}
	l.byPod[uid] = left
	if len(left) == 0 {
		delete(l.byPod, uid)
	}
	return errors.Join(errs...)
}
