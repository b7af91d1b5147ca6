package collect

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/podtest"
)

// A stage is a directory with the logs of pods, and one with links to them.
type stage struct {
	*testing.T
	*Logs
	root string
}

const grace = 10 * time.Second

func newStage(t *testing.T, root string) *stage {
	c := &config.Config{Dirs: config.Dirs{LogLinks: filepath.Join(root, "containers")}}
	c.Kubelet.PodLogsDir = filepath.Join(root, "pods")
	c.Kubelet.ContainerLogMonitorInterval = &metav1.Duration{Duration: grace}
	return &stage{t, NewLogs(c, slog.New(slog.DiscardHandler)), root}
}

func pod(uid string) *v1.Pod {
	return podtest.New("web", podtest.Namespace("ns"), podtest.UID(uid))
}

// put creates the log of a pod's container, and its link. It returns the log's path.
func (s *stage) put(uid string) string {
	s.Helper()
	path := filepath.Join(s.Logs.Links.Logs, "ns_web_"+uid, "c", "0.log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("last line\n"), 0o644)); err != nil {
		s.Fatal(err)
	}
	if err := s.Link(pod(uid), "c", "id"+uid, path); err != nil {
		s.Fatal(err)
	}
	return path
}

// left checks which pods have logs and links.
func (s *stage) left(want ...string) {
	s.Helper()
	for _, dir := range []string{"pods", "containers"} {
		entries, err := os.ReadDir(filepath.Join(s.root, dir))
		if err != nil {
			s.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			name := strings.TrimPrefix(strings.TrimSuffix(e.Name(), ".log"), "web_ns_c-id")
			got = append(got, strings.TrimPrefix(name, "ns_web_"))
		}
		if !slices.Equal(got, want) {
			s.Errorf("%s: %v are left, not %v", dir, got, want)
		}
	}
}

func (s *stage) release(uid types.UID) {
	s.Helper()
	if err := s.Release(s.Context(), uid); err != nil {
		s.Fatal(err)
	}
}

// after waits in a bubble.
func after(d time.Duration) {
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}

// TestLogs checks that the logs and links of a released pod stay for the grace time. Another Release does not extend it. The removal does
// not follow symbolic links.
func TestLogs(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, root)
		s.release("u1") // nothing exists yet
		for _, uid := range []string{"u1", "u2", "u3"} {
			s.put(uid)
		}
		err := errors.Join(os.WriteFile(outside+"/kept", nil, 0o600), os.Symlink(outside, filepath.Join(root, "pods/ns_web_u1/c/1.log")))
		if err != nil {
			t.Fatal(err)
		}
		s.release("u1")
		after(grace / 2)
		s.left("u1", "u2", "u3")
		s.release("u1")
		s.release("u2")
		after(grace / 2)
		s.left("u2", "u3")
		if _, err := os.Stat(outside + "/kept"); err != nil {
			t.Error(err)
		}
		after(grace / 2)
		s.left("u3")
	})
}

// TestLogsOfReturned checks that the logs of a removed pod are removed when a pod with its UID starts, also after a restart of the agent
// and if the removed pod was not released. The logs of the new pod stay.
func TestLogsOfReturned(t *testing.T) {
	for name, leave := range map[string]func(s *stage, log string){
		"released": func(s *stage, _ string) { s.release("u1") },
		"restarted": func(s *stage, _ string) {
			s.release("u1")
			*s = *newStage(s.T, s.root)
		},
		"retired": func(s *stage, log string) {
			for range 2 {
				if err := s.Retire(log); err != nil {
					s.Fatal(err)
				}
			}
		},
	} {
		root := t.TempDir()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, root)
				log := s.put("u1")
				s.put("u2")
				leave(s, log)
				s.left("u1", "u2")
				if err := s.Prepare(t.Context(), pod("u1")); err != nil {
					t.Fatal(err)
				}
				s.left("u2")
				s.put("u1")
				if err := s.Prepare(t.Context(), pod("u1")); err != nil {
					t.Fatal(err)
				}
				after(2 * grace)
				s.left("u1", "u2")
			})
		})
	}
	if err := newStage(t, t.TempDir()).Retire("/elsewhere/ns_web_u1/c/0.log"); err == nil {
		t.Error("a log elsewhere is retired")
	}
}

// TestLogsOfSecondRelease checks that the logs of a pod that has returned with its UID, and was released again, stay for the whole grace
// time. Calls of Sweep do not change this time, and add no timers.
func TestLogsOfSecondRelease(t *testing.T) {
	for name, x := range map[string]struct {
		end  func(s *stage) error
		wait time.Duration
	}{
		"prepared":                   {func(s *stage) error { return s.Prepare(s.Context(), pod("u1")) }, 0},
		"flushed":                    {func(s *stage) error { s.Flush(); return nil }, 0},
		"removed by another program": {func(s *stage) error { return os.RemoveAll(filepath.Join(s.root, "pods/ns_web_u1")) }, grace},
	} {
		root := t.TempDir()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, root)
				s.put("u1")
				s.release("u1")
				after(grace / 2)
				if err := x.end(s); err != nil {
					t.Fatal(err)
				}
				after(x.wait)
				s.put("u1")
				s.release("u1")
				for range 3 {
					if err := s.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
						t.Error(err)
					}
					if len(s.timers) != 1 {
						t.Errorf("%d timers", len(s.timers))
					}
					after(grace / 4)
				}
				s.left("u1")
				after(grace / 4)
				s.left()
				if len(s.timers) != 0 {
					t.Errorf("%d timers are left", len(s.timers))
				}
			})
		})
	}
}

// TestLogsOfOthers checks that the end of a pod does not remove the link of a running container whose log does not exist for a moment,
// because another program rotates it. It also checks that the links of a pod are removed without its directory.
func TestLogsOfOthers(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, root)
		log := s.put("u1")
		var gone string
		for _, uid := range []string{"u2", "u3", "u4", "u5"} {
			gone = s.put(uid)
		}
		if err := errors.Join(os.Rename(log, log+".20261128"), os.RemoveAll(filepath.Dir(filepath.Dir(gone)))); err != nil {
			t.Fatal(err)
		}
		for _, end := range []func(){
			func() { s.release("u2"); after(grace) },
			func() { s.release("u3"); s.Flush() },
			func() { s.release("u5") },
			func() {
				if err := s.Sweep(t.Context(), func(uid types.UID) bool { return uid == "u1" }); err != nil {
					t.Error(err)
				}
			},
		} {
			end()
			if _, err := os.Lstat(filepath.Join(root, "containers/web_ns_c-idu1.log")); err != nil {
				t.Error(err)
			}
		}
		s.left("u1")
	})
}

// TestLogsBehindSymlink checks that a pod that can write to the directory of all logs cannot make the agent create a mark elsewhere, or
// trust a mark there. The log and its link are then removed at once.
func TestLogsBehindSymlink(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	s := newStage(t, root)
	log := s.put("u1")
	dir := filepath.Dir(filepath.Dir(log))
	mark := filepath.Join(outside, removedMark)
	if err := os.Symlink(mark, filepath.Join(dir, removedMark)); err != nil {
		t.Fatal(err)
	}
	if err := s.Retire(log); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Rename(dir, filepath.Join(outside, "pod")), os.Symlink(outside+"/pod", dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(outside + "/pod/" + removedMark); err != nil {
		t.Fatal(err)
	}
	if err := s.Retire(log); err == nil {
		t.Error("a directory behind a symbolic link was marked")
	}
	for _, file := range []string{mark, outside + "/pod/" + removedMark} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := os.WriteFile(outside+"/pod/"+removedMark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), pod("u1")); err != nil {
		t.Error(err)
	}
	s.release("u1")
	if _, err := os.Lstat(filepath.Join(root, "containers/web_ns_c-idu1.log")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the link:", err)
	}
	if _, err := os.Stat(outside + "/pod/c/0.log"); err != nil {
		t.Error(err)
	}
	if err := s.Retire(filepath.Join(s.Logs.Links.Logs, "ns_web_u2/0.log")); err == nil {
		t.Error("the directory of all logs was marked")
	}
}

// TestLogsAtOnce checks that Flush removes the logs of released pods at once. Sweep leaves them for the grace time, also after
// a restart of the agent, and removes the logs of unknown pods.
func TestLogsAtOnce(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, root)
		for _, uid := range []string{"u1", "u2", "u3"} {
			s.put(uid)
		}
		if err := os.Mkdir(filepath.Join(root, "pods/other"), 0o755); err != nil {
			t.Fatal(err)
		}
		s.release("u1")
		keep := func(uid types.UID) bool { return uid == "u3" }
		if err := s.Sweep(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(root, "pods/other")); err != nil {
			t.Error("a foreign directory was removed:", err)
		}
		s.left("u1", "u3")
		swept := false
		s.FlushThen(func(ctx context.Context) { swept = ctx == t.Context() })(t.Context())
		s.left("u3")
		if !swept {
			t.Error("the function was not called")
		}
		log := s.put("u1")
		s.put("u2")
		if err := s.Retire(log); err != nil {
			t.Fatal(err)
		}
		s = newStage(t, root) // after the agent was killed
		if err := s.Sweep(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		s.left("u1", "u3")
		after(grace)
		s.left("u3")
	})
	s := newStage(t, t.TempDir())
	if err := s.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
		t.Error("without a directory:", err)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
