package cgroup

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
)

// in returns the cgroup of a process.
func in(t *testing.T, pid int) string {
	t.Helper()
	all, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := all["memory"]; ok {
		return at
	}
	return all[""]
}

// waiter starts a process in the given cgroup and returns its PID. The process ends when the test ends.
func waiter(t *testing.T, at string) int {
	t.Helper()
	cmd := exec.Command("cat")
	w, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		cmd.Wait()
	})
	m, err := managerAt(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestGather checks that processes directly in the cgroup Root are moved. Processes in other cgroups are not moved.
func TestGather(t *testing.T) {
	h := newHierarchy(t)
	root := "/" + h.root
	loose, placed := waiter(t, root), waiter(t, root+"/service")
	s := System{Root: root, Others: root + "/system", Log: slog.New(slog.DiscardHandler)}
	if err := s.Enter(); err != nil {
		t.Fatal(err)
	}
	if got := in(t, loose); got != root+"/system" {
		t.Errorf("a loose process is in %s", got)
	}
	if got := in(t, placed); got != root+"/service" {
		t.Errorf("a placed process is in %s", got)
	}
	later := waiter(t, root)
	s.moveProcesses()
	if got := in(t, later); got != root+"/system" {
		t.Errorf("a later process is in %s", got)
	}
	if got := in(t, os.Getpid()); strings.HasPrefix(got, root) {
		t.Errorf("the test itself is in %s", got)
	}
	if pids, err := (System{Root: "/"}).movablePIDs(); err != nil {
		t.Error(err)
	} else {
		for _, pid := range pids {
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && kernelThread(string(status)) {
				t.Errorf("a kernel thread: %s", status)
			}
			if pid == 1 {
				t.Error("process 1 is movable")
			}
		}
	}
}

// kernelThread reports whether the flags in /proc/<pid>/stat contain PF_KTHREAD.
func kernelThread(stat string) bool {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return flags&0x200000 != 0
}

// TestEnter checks that Enter moves the calling process to the cgroup Agent. The test runs in a child process.
func TestEnter(t *testing.T) {
	const envName = "ISLET_TEST_ENTER"
	if at := os.Getenv(envName); at != "" {
		err := (System{Agent: at}).Enter()
		if err == nil {
			err = (System{Agent: at}).Enter() // the process is already in Agent
		}
		fmt.Println(in(t, os.Getpid()), err)
		bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	h := newHierarchy(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestEnter$")
	cmd.Env = append(os.Environ(), envName+"="+h.root+"/agent/") // the path is not in canonical form
	w, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if want := fmt.Sprintf("/%s/agent <nil>\n", h.root); err != nil || line != want {
		t.Errorf("%q, not %q (%v)", line, want, err)
	}
	w.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := (System{Agent: h.root + "/no\nname"}).Enter(); err == nil {
		t.Error("Enter accepted an invalid name")
	}
}
