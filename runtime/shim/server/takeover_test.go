package server

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A takeoverTest is a Server whose reaper does not run. A command of the OCI runtime therefore never ends for the shim, like a process that
// waits in the kernel for a disk, until the test calls reapChildren.
type takeoverTest struct {
	*Server
	dir string
}

func newTakeoverTest(t *testing.T) takeoverTest {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	s := takeoverTest{New(slog.New(slog.DiscardHandler), nil), t.TempDir()}
	s.containers["other"] = &container{pid: 1, req: wire.RunRequest{ID: "other"}, ended: make(chan struct{})}
	return s
}

// begin starts a container for an agent in a goroutine, and returns when the OCI runtime has started the container and has ended. The
// channel receives the result.
func (s takeoverTest) begin(t *testing.T, by *conn) <-chan error {
	t.Helper()
	oci := filepath.Join(s.dir, "oci")
	script := "#!/bin/sh\ncase \"$*\" in *delete*) >" + s.dir + "/deleted; exit;; esac\n" +
		"until [ \"$1\" = --pid-file ]; do shift; done\nsleep 1000 & echo $! >$2\n"
	if err := os.WriteFile(oci, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := s.runContainer(by, wire.RunRequest{ID: "c", Bundle: s.dir, OCI: wire.OCI{Path: oci, Root: s.dir}})
		result <- err
	}()
	synctest.Wait()
	s.awaitCommand(t)
	return result
}

// awaitCommand waits until the running command of the OCI runtime is a zombie.
func (s takeoverTest) awaitCommand(t *testing.T) {
	t.Helper()
	s.reaper.mu.Lock()
	pids := slices.Collect(maps.Keys(s.reaper.calls))
	s.reaper.mu.Unlock()
	for _, pid := range pids {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// ids returns the sorted IDs of a list.
func ids(list []wire.Container) (out []string) {
	for _, c := range list {
		out = append(out, c.ID)
	}
	slices.Sort(out)
	return out
}

// pid returns the PID of the container's process.
func (s takeoverTest) pid() int {
	return must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(filepath.Join(s.dir, pidFile)))))))
}

// TestTakeoverStuck checks a start that does not end, because its OCI runtime waits in the kernel. It delays neither signals to other
// containers nor, for longer than an agent waits, the list for a new agent. After callTimeout at the latest it fails.
func TestTakeoverStuck(t *testing.T) {
	const listTimeout = 30 * time.Second // in package ctrd
	synctest.Test(t, func(t *testing.T) {
		s, before, after := newTakeoverTest(t), &conn{number: 1}, &conn{number: 2}
		s.owner = before
		result := s.begin(t, before)
		if _, err := s.killContainer(before, wire.KillRequest{ID: "other", Signal: 9}); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		if got := ids(must(s.listContainers(after))); !slices.Equal(got, []string{"other"}) {
			t.Errorf("the list has %v", got)
		}
		if took := time.Since(begin); took > listTimeout-10*time.Second {
			t.Errorf("the list took %v", took)
		}
		if _, err := s.killContainer(after, wire.KillRequest{ID: "other", Signal: 9}); err != nil {
			t.Error(err)
		}
		if _, err := s.killContainer(before, wire.KillRequest{ID: "other", Signal: 9}); !errors.Is(err, errConflict) {
			t.Error(err)
		}
		begin = time.Now()
		must(s.listContainers(&conn{number: 3}))
		if took := time.Since(begin); took > 0 {
			t.Errorf("the next list took %v", took)
		}
		if err := <-result; err == nil || !strings.Contains(err.Error(), errStuck.Error()) {
			t.Errorf("the start: %v", err)
		}
		if s.containers["c"] != nil {
			t.Error("the container is left")
		}
		unix.Kill(s.pid(), unix.SIGKILL)
		s.awaitCommand(t)
		if s.reaper.reapChildren(); len(s.reaper.calls) > 0 || len(s.reaper.wait) > 0 {
			t.Errorf("left: %v %v", s.reaper.calls, s.reaper.wait)
		}
	})
}

// TestTakeoverLate checks a start that ends after a new agent has received a list without this container. The container is removed.
func TestTakeoverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, before, after := newTakeoverTest(t), &conn{number: 1}, &conn{number: 2}
		result := s.begin(t, before)
		must(s.listContainers(after))
		s.reaper.reapChildren() // the OCI runtime has ended successfully
		synctest.Wait()
		s.awaitCommand(t)
		s.reaper.reapChildren() // its command delete has ended
		if err := <-result; !errors.Is(err, errConflict) {
			t.Errorf("the start: %v", err)
		}
		if s.containers["c"] != nil || !pathExists(filepath.Join(s.dir, "deleted")) {
			t.Error("the container is left")
		}
		// This call waits for the end of the process, unless reapChildren has reaped it.
		if err := unix.Waitid(unix.P_PID, s.pid(), nil, unix.WEXITED, nil); err != nil && err != unix.ECHILD {
			t.Error(err)
		}
	})
}

// TestTakeoverWaits checks a start that ends while a new agent waits for the list. The list contains the container.
func TestTakeoverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, before, after := newTakeoverTest(t), &conn{number: 1}, &conn{number: 2}
		result, list := s.begin(t, before), make(chan []wire.Container)
		go func() { list <- must(s.listContainers(after)) }()
		synctest.Wait()
		s.reaper.reapChildren()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if got := ids(<-list); !slices.Equal(got, []string{"c", "other"}) {
			t.Errorf("the list has %v", got)
		}
		c := s.containers["c"]
		unix.Kill(c.pid, unix.SIGKILL)
		unix.Waitid(unix.P_PID, c.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		s.reaper.reapChildren()
		<-c.ended
	})
}

// TestTakeoverOrder checks two agents whose lists wait for the same start, of which the first agent has died. The second agent is the
// owner, whether the start ends or is ended, and in whichever order the two lists continue.
func TestTakeoverOrder(t *testing.T) {
	for _, ends := range []bool{true, false} {
		for _, firstLast := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s, dead, living := newTakeoverTest(t), &conn{number: 2}, &conn{number: 3}
				result := s.begin(t, &conn{number: 1})
				lists := map[*conn]chan error{dead: make(chan error, 1), living: make(chan error, 1)}
				order := []*conn{living, dead}
				if firstLast {
					slices.Reverse(order)
				}
				for _, c := range order {
					go func() { _, err := s.listContainers(c); lists[c] <- err }()
					synctest.Wait()
				}
				if ends {
					s.reaper.reapChildren()
				} // otherwise both lists time out
				if err := <-lists[living]; err != nil {
					t.Error(err)
				}
				if err := <-lists[dead]; err != nil && !errors.Is(err, errConflict) {
					t.Error(err)
				}
				if s.owner != living {
					t.Error("the dead agent is the owner")
				}
				if _, err := s.killContainer(living, wire.KillRequest{ID: "other", Signal: 9}); err != nil {
					t.Error(err)
				}
				if _, err := s.listContainers(dead); !errors.Is(err, errConflict) {
					t.Errorf("a later list of the dead agent: %v", err)
				}
				if err := <-result; (err == nil) != ends {
					t.Errorf("the start: %v", err)
				}
				unix.Kill(s.pid(), unix.SIGKILL)
				if ends {
					c := s.containers["c"]
					unix.Waitid(unix.P_PID, c.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
					s.reaper.reapChildren()
					<-c.ended
				} else {
					s.awaitCommand(t)
					s.reaper.reapChildren()
				}
			})
		}
	}
}

// TestRetriesOfStuck checks the retries of a start that does not end. Each attempt leaves only one process, and their number is limited for
// each pod. When one of them has ended, the start is tried again.
func TestRetriesOfStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, by := newTakeoverTest(t), &conn{number: 1}
		var pids []int
		for range maxStuck {
			if err := <-s.begin(t, by); err == nil || !strings.Contains(err.Error(), errStuck.Error()) {
				t.Errorf("the start: %v", err)
			}
			pids = append(pids, s.pid())
		}
		begin := time.Now()
		r := wire.RunRequest{ID: "c", Bundle: s.dir}
		if _, err := s.runContainer(by, r); !errors.Is(err, errStuck) || time.Since(begin) > 0 {
			t.Errorf("the last attempt: %v after %v", err, time.Since(begin))
		}
		if n := len(s.reaper.calls); n != maxStuck || pathExists(filepath.Join(s.dir, "deleted")) {
			t.Errorf("%d commands wait", n)
		}
		if err := s.reaper.checkStuck("/other"); err != nil {
			t.Errorf("another pod: %v", err)
		}
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		s.awaitCommand(t)
		s.reaper.reapChildren()
		if err := s.reaper.checkStuck(podOf(r)); err != nil || len(s.reaper.calls) > 0 {
			t.Errorf("afterwards: %v, %d commands", err, len(s.reaper.calls))
		}
	})
}
