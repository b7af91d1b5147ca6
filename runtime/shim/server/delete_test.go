package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// TestDelete checks when the shim deletes an ended container itself: if the state is crun's, no process is left in the cgroup, and the OCI
// runtime has nothing else to do. Otherwise it calls the OCI runtime, which is a program that does nothing in this test.
func TestDelete(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cases := []struct {
		name   string
		change func(t *testing.T, c *container, st *crunStatus)
		called bool
	}{
		{"plain", func(*testing.T, *container, *crunStatus) {}, false},
		{"an empty cgroup of only some hierarchies", func(_ *testing.T, _ *container, st *crunStatus) {
			for _, f := range foldersOf(st.Cgroup)[1:] {
				unix.Rmdir(f)
			}
		}, false},
		{"hooks", func(_ *testing.T, c *container, _ *crunStatus) { c.req.Plain = false }, true},
		{"systemd", func(_ *testing.T, c *container, _ *crunStatus) { c.req.OCI.Systemd = true }, true},
		{"systemd when it was created", func(_ *testing.T, _ *container, st *crunStatus) { st.Systemd = true }, true},
		{"Intel RDT", func(_ *testing.T, _ *container, st *crunStatus) { st.RDT = "r" }, true},
		{"another bundle", func(_ *testing.T, _ *container, st *crunStatus) { st.Bundle = "/other" }, true},
		{"no cgroup", func(_ *testing.T, _ *container, st *crunStatus) { st.Cgroup = "" }, true},
		{"the root cgroup", func(_ *testing.T, _ *container, st *crunStatus) { st.Cgroup = "/.." }, true},
		{"a process in the cgroup", func(t *testing.T, _ *container, st *crunStatus) { occupy(t, st.Cgroup) }, true},
		{"a child cgroup", func(t *testing.T, _ *container, st *crunStatus) { makeCgroup(t, st.Cgroup+"/child") }, true},
		{"no state", func(_ *testing.T, c *container, _ *crunStatus) { c.req.OCI.Root += "/none" }, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, crunName)
			copyProgram(t, "true", program)
			c := &container{ended: make(chan struct{}), pid: 1, req: wire.RunRequest{
				ID: "c", Bundle: dir, Plain: true, OCI: wire.OCI{Path: program, Root: filepath.Join(dir, "state")},
			}}
			close(c.ended)
			st := crunStatus{Bundle: dir, Cgroup: "/islet-test-delete-" + strconv.Itoa(os.Getpid())}
			group, state := st.Cgroup, filepath.Join(c.req.OCI.Root, "c")
			makeCgroup(t, group)
			tc.change(t, c, &st)
			writeState(t, state, st)
			s := New(slog.New(slog.DiscardHandler), nil)
			s.containers["c"] = c
			s.reaper.programs.protectCommand(exec.Command(program))
			runReaper(t, s.reaper)
			if _, err := s.removeContainer(wire.Target{ID: "c"}); err != nil {
				t.Fatal(err)
			}
			if left := pathExists(state); left != tc.called {
				t.Errorf("the state is left: %v, want %v", left, tc.called)
			}
			left := slices.DeleteFunc(foldersOf(group), func(f string) bool { return !pathExists(f) })
			if !tc.called && len(left) > 0 {
				t.Errorf("cgroups are left: %v", left)
			}
		})
	}
}

// TestFailedStart checks what is left of a container whose OCI runtime fails or is killed during the start. This OCI runtime leaves a
// process in the cgroup of the container, and cannot delete the container because it has not written its state.
func TestFailedStart(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s := New(slog.New(slog.DiscardHandler), nil)
	runReaper(t, s.reaper)
	for _, last := range []string{"exit 1", "kill -9 $$", "exit 0"} { // after exit 0, the file with the PID is missing
		dir := t.TempDir()
		group := "/islet-test-start-" + strconv.Itoa(os.Getpid())
		makeCgroup(t, group)
		script := "#!/bin/sh\ncase \"$*\" in *delete*) exit 1;; esac\nsleep 1000 &\n"
		for _, folder := range foldersOf(group) {
			script += "echo $! >" + folder + "/cgroup.procs\n"
		}
		script += "echo $! >" + dir + "/left\n" + last + "\n"
		program := filepath.Join(dir, "runtime")
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		c := &container{cgroup: cgroupAt(group), req: wire.RunRequest{
			ID: "c", Bundle: dir, Cgroup: group, OCI: wire.OCI{Path: program, Root: filepath.Join(dir, "state")},
		}}
		if pid, err := s.startContainer(c); err == nil {
			t.Errorf("%s: process %d was started", last, pid)
		}
		c.io.closeFiles()
		pid := must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(filepath.Join(dir, "left")))))))
		if err := unix.Kill(pid, 0); err == nil && !isZombie(pid) {
			t.Errorf("%s: the process is left", last)
			unix.Kill(pid, unix.SIGKILL)
		}
		if left := slices.DeleteFunc(foldersOf(group), func(f string) bool { return !pathExists(f) }); len(left) > 0 {
			t.Errorf("%s: cgroups are left: %v", last, left)
		}
	}
}

// runReaper runs a reaper until the test ends, and waits for its end. A reaper that is left from a former test would take the children of
// the next one.
func runReaper(t *testing.T, r *reaper) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
}

// isZombie reports whether a process has ended and was not reaped yet.
func isZombie(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "Z")
}

func writeState(t *testing.T, dir string, st crunStatus) {
	t.Helper()
	b, err := json.Marshal(st)
	err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, statusFile), b, 0o600),
		os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// foldersOf returns the directories of a cgroup in all hierarchies.
func foldersOf(group string) (dirs []string) {
	folders := []string{""}
	if !pathExists(filepath.Join(mountpoint, "cgroup.controllers")) {
		folders = hierarchies(string(must(os.ReadFile("/proc/self/cgroup"))))
	}
	for _, f := range folders {
		if pathExists(filepath.Join(mountpoint, f)) {
			dirs = append(dirs, filepath.Join(mountpoint, f, group))
		}
	}
	return dirs
}

func makeCgroup(t *testing.T, group string) {
	t.Helper()
	for _, dir := range foldersOf(group) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skip("cannot create a cgroup: ", err)
		}
		t.Cleanup(func() { unix.Rmdir(dir) })
	}
}

// occupy starts a process in the cgroup.
func occupy(t *testing.T, group string) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	dirs := foldersOf(group)
	err := os.WriteFile(filepath.Join(dirs[len(dirs)-1], "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0)
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestHierarchies checks which folders contain the hierarchies of cgroup v1, those with a name, and the unified hierarchy of
// hybrid cgroups.
func TestHierarchies(t *testing.T) {
	got := hierarchies("12:cpu,cpuacct:/a\n3:memory:/a:b\n1:name=systemd:/\n0::/init.scope\nno line\n")
	if want := []string{"cpu,cpuacct", "memory", "systemd", "unified"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
