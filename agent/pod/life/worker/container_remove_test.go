package worker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// linkRecorder records the logs whose links are removed, and the logs that are retired.
type linkRecorder struct {
	noLinks
	fail              error
	unlinked, retired []string
}

func (l *linkRecorder) Unlink(log string) error {
	l.unlinked = append(l.unlinked, log)
	return nil
}

func (l *linkRecorder) Retire(log string) error {
	l.retired = append(l.retired, log)
	return l.fail
}

// TestLogsOfRemoved checks that the log of a container stays if its pod is removed too, because log shippers still read it. The log of a
// dead container of a pod that runs is removed with the container. So is a log that cannot be retired.
func TestLogsOfRemoved(t *testing.T) {
	for _, fail := range []error{nil, errors.New("the disk is full")} {
		links := &linkRecorder{fail: fail}
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, newMachine("app:1"))
			n.links = links
			n.start(t)
			defer func() { n.stop() }()
			n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
			var logs []string
			for range 3 {
				c := n.current(t)
				if err := errors.Join(os.MkdirAll(filepath.Dir(c.LogPath), 0o755), os.WriteFile(c.LogPath, []byte("last line\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
				logs = append(logs, c.LogPath)
				n.End(c.ID, 1)
				time.Sleep(time.Minute)
				synctest.Wait()
			}
			if _, err := os.Stat(logs[0]); err == nil || !slices.Equal(links.unlinked, logs[:2]) && !slices.Equal(links.unlinked, logs[:1]) {
				t.Errorf("%s is left, and unlinked are %q", logs[0], links.unlinked)
			}
			unlinked := len(links.unlinked)
			n.setWish("a", Wanted{})
			time.Sleep(time.Minute)
			synctest.Wait()
			_, err := os.Stat(logs[2])
			if kept := err == nil; kept != (fail == nil) || !slices.Contains(links.retired, logs[2]) {
				t.Errorf("with %v the last log is kept: %t, and retired are %q", fail, kept, links.retired)
			}
			if more := len(links.unlinked) - unlinked; (more == 0) != (fail == nil) {
				t.Errorf("with %v %d links were removed", fail, more)
			}
		})
	}
}
