package ctrd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestShimSilent checks the stop of containers whose shims do not respond. Such a container is killed soon after its grace period. The
// other containers of the shim keep running. The status shows that the agent killed the container, also after the shim has resumed and
// after a restart of the agent. If a shim resumes before the agent kills the container, the shim itself reports that the container has
// ended.
func TestShimSilent(t *testing.T) {
	n := newNode(t, 2)
	ctx := t.Context()
	pods, ids, pids := map[int]string{}, map[int]string{}, map[int]int{}
	for i := range 6 {
		pods[i], ids[i] = n.runPod(t, i, "ignore")
		pids[i] = n.pid(t, ids[i])
	}
	shims := map[string]int{}
	for _, name := range []string{"1", "2", "3"} {
		pid := n.shimProcess(t, name)
		if pid == 0 {
			t.Fatalf("shim %s does not run", name)
		}
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer unix.Kill(pid, unix.SIGCONT)
		eventually(t, "all its threads have stopped", func() bool { return stopped(t, pid) })
		shims[name] = pid
	}
	begun := time.Now()
	var stops sync.WaitGroup
	for _, i := range []int{0, 2, 4} {
		stops.Go(func() {
			if _, err := n.StopContainer(ctx, &api.StopContainerRequest{ContainerId: ids[i], Timeout: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the third container is killed", func() bool { return dead(pids[4]) })
	if err := unix.Kill(shims["3"], unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	stops.Wait()
	if took := time.Since(begun); took > time.Minute { // it takes eleven seconds on an idle machine
		t.Errorf("it took %v", took)
	}
	check := func(when string) {
		t.Helper()
		for i := range 6 {
			st, byAgent := n.status(t, ids[i]), i == 0 || i == 2
			if ended := i%2 == 0; ended != (st.State == api.ContainerState_CONTAINER_EXITED) || ended &&
				(st.ExitCode != 137 || st.Reason != "Error") || byAgent != strings.Contains(st.Message, "killed by the agent") {
				t.Errorf("%s: container %d is %v", when, i, st)
			}
			if dead(pids[i]) != (i%2 == 0) {
				t.Errorf("%s: the process of container %d is dead: %v", when, i, dead(pids[i]))
			}
		}
	}
	check("immediately")
	if _, err := os.Stat(filepath.Join(n.run, "b", ids[0])); err != nil {
		t.Errorf("the bundle was removed before the shim has deleted the container: %v", err)
	}
	for _, name := range []string{"1", "2"} {
		if err := unix.Kill(shims[name], unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 2, 4} {
		eventually(t, "its bundle is removed", func() bool {
			_, err := os.Stat(filepath.Join(n.run, "b", ids[i]))
			return errors.Is(err, os.ErrNotExist)
		})
	}
	check("after the shims have resumed")
	n.stop(t)
	n.start(t)
	check("after a restart of the agent")
}

// TestShimSilentDies checks a container that was killed while its shim did not respond. The record of the container is kept when the shim
// dies. The container can then be removed.
func TestShimSilentDies(t *testing.T) {
	n := newNode(t, 2)
	ctx := t.Context()
	_, id := n.runPod(t, 0, "ignore")
	_, bystander := n.runPod(t, 1, "ignore")
	shim := n.shimProcess(t, "1")
	if err := unix.Kill(shim, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all its threads have stopped", func() bool { return stopped(t, shim) })
	if _, err := n.StopContainer(ctx, &api.StopContainerRequest{ContainerId: id}); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other container is ended", func() bool { return n.status(t, bystander).State == api.ContainerState_CONTAINER_EXITED })
	if st := n.status(t, id); st.ExitCode != 137 || st.Reason != "Error" {
		t.Errorf("it ended as %v", st)
	}
	if _, err := n.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Error(err)
	}
}

// dead reports whether a process has ended. This includes zombies.
func dead(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(text, []byte(") "))
	return err != nil || bytes.HasPrefix(state, []byte("Z"))
}
