package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// linkRecorder records the logs whose links are removed, and the logs that are retired.
type linkRecorder struct {
	noLinks
	fail              error // of Retire
	stuck             error // of Unlink
	unlinked, retired []string
}

func (l *linkRecorder) Unlink(log string) error {
	l.unlinked = append(l.unlinked, log)
	return l.stuck
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
				time.Sleep(time.Minute) // in the bubble's time, until the next attempt runs
				synctest.Wait()
			}
			if _, err := os.Stat(logs[0]); err == nil || !slices.Equal(links.unlinked, logs[:2]) && !slices.Equal(links.unlinked, logs[:1]) {
				t.Errorf("%s is left, and unlinked are %q", logs[0], links.unlinked)
			}
			unlinked := len(links.unlinked)
			n.setWish("a", Wanted{})
			time.Sleep(time.Minute) // in the bubble's time, until the pod is removed
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

// TestLogBeforeContainer checks that a container exists for as long as its log or its link does, also if a removal fails or the agent is
// killed between two steps: nothing else names the log. The next removal completes the work. A failure that lasts for ever, and the removal
// of the whole pod, whose directory of logs has the name of the pod, do not keep the container.
func TestLogBeforeContainer(t *testing.T) {
	type failure struct {
		stuck, runtime error
		pod            bool // the pod is removed too
		kept           bool // the container stays
	}
	cases := map[string]failure{
		"nothing fails":         {},
		"the link":              {stuck: unix.EBUSY, kept: true},
		"the link, with a pod":  {stuck: unix.EBUSY, pod: true},
		"the link, on the disk": {stuck: unix.EIO},
		"the runtime":           {runtime: errors.New("it does not answer"), kept: true},
	}
	for no := unix.Errno(1); no < 134; no++ { // all of Linux
		transient := slices.Contains([]unix.Errno{unix.EBUSY, unix.EINTR, unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE}, no)
		cases["the link: "+no.Error()] = failure{stuck: no, kept: transient}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "pods/ns_web_u1/c/0.log")
			if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			links := &linkRecorder{stuck: c.stuck, fail: errors.ErrUnsupported}
			rt := &removalRecorder{machine: newMachine(), fail: c.runtime, log: log}
			e := NewExecutor(ExecutorConfig{Runtime: rt, Links: links})
			in, action := plan.Input{}, plan.Action{Op: plan.RemoveContainer, Container: "c", ID: "i", KeepsLog: c.pod}
			in.Observed.Containers = []plan.Container{{ID: "i", LogPath: log}}
			err := e.removeContainer(t.Context(), in, action)
			if rt.removed == c.kept || (err == nil) != (c.stuck == nil && c.runtime == nil) {
				t.Errorf("the container is removed: %t, error %v", rt.removed, err)
			}
			if rt.early {
				t.Error("the container was removed before its log")
			}
			links.stuck, rt.fail = nil, nil
			if err := e.removeContainer(t.Context(), in, action); err != nil || !rt.removed {
				t.Errorf("again: the container is removed: %t, error %v", rt.removed, err)
			}
			if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the log is left: %v", err)
			}
		})
	}
}

// A removalRecorder records whether a container was removed, and whether its log existed at that time.
type removalRecorder struct {
	*machine
	fail           error
	log            string
	removed, early bool
}

func (r *removalRecorder) RemoveContainer(
	ctx context.Context, q *api.RemoveContainerRequest,
) (*api.RemoveContainerResponse, error) {
	_, err := os.Stat(r.log)
	r.early = r.early || err == nil
	if r.fail != nil {
		return nil, r.fail
	}
	r.removed = true
	return r.machine.RemoveContainer(ctx, q)
}

// TestRemovedLogBehindSymlink checks that a pod that can write to the directory of all logs cannot make the agent remove files elsewhere.
// A log without symlinks above it is removed with its rotated parts, also after the pod has put other files in their place.
func TestRemovedLogBehindSymlink(t *testing.T) {
	for name, above := range map[string]string{"none": "", "pod": "pods/ns_web_u1", "container": "pods/ns_web_u1/c"} {
		t.Run(name, func(t *testing.T) {
			root, outside := t.TempDir(), t.TempDir()
			dir := filepath.Join(root, "pods/ns_web_u1/c")
			must := func(errs ...error) {
				t.Helper()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			must(os.MkdirAll(dir+"/0.log.d/e", 0o755), os.Symlink(outside, dir+"/0.log.link"), os.WriteFile(outside+"/kept", nil, 0o600))
			for _, file := range []string{"0.log", "0.log.20261128-120000", "0.log.20261127-120000.gz", "1.log", "x0.log"} {
				must(os.WriteFile(filepath.Join(dir, file), nil, 0o600))
			}
			if above != "" {
				must(os.Rename(filepath.Join(root, above), outside+"/moved"), os.Symlink(outside+"/moved", filepath.Join(root, above)))
			}
			before, err := os.ReadDir(dir)
			must(err)
			links := &linkRecorder{}
			e := NewExecutor(ExecutorConfig{Runtime: newMachine(), Links: links})
			in, action := plan.Input{}, plan.Action{Op: plan.RemoveContainer, Container: "c", ID: "i"}
			in.Observed.Containers = []plan.Container{{ID: "i", LogPath: dir + "/0.log"}, {ID: "j", LogPath: dir + "/1.log"}}
			err = e.removeContainer(t.Context(), in, action)
			after, failed := os.ReadDir(dir)
			must(failed)
			if want := map[bool]int{true: 2, false: len(before)}[above == ""]; len(after) != want || (err == nil) != (above == "") {
				t.Errorf("%d files are left, not %d: %v", len(after), want, err)
			}
			if !slices.Equal(links.unlinked, []string{dir + "/0.log"}) {
				t.Errorf("unlinked are %q", links.unlinked)
			}
			_, err = os.Stat(outside + "/kept")
			must(err, os.RemoveAll(root), e.removeContainer(t.Context(), in, action))
		})
	}
}
