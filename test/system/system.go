// Package system boots a Debian system with its own init, systemd or OpenRC, in namespaces of this
// machine. Tests install packages and run services in the system. The system uses this machine's
// kernel and is as fast as this machine. Tests that need another kernel, a disk or a power cut use
// package vm.
//
//	root.sh --> file system --overlay--> boot.sh --> init <--nsenter-- Run(command)
//	New --> Boot --> Run ... --> PowerOff --> Boot ...
package system

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// These are the command lines of a system's init.
var (
	Systemd = []string{"/lib/systemd/systemd", "systemd.unified_cgroup_hierarchy=0", "--log-target=journal", "--show-status=0"}
	OpenRC  = []string{"/sbin/openrc-init"}
)

// A System is a Debian system in namespaces. It is not safe for concurrent use.
type System struct {
	Dir     string // the directory that contains the files written by the system (layer, var) and its /payload
	Console string // the file with the output of its init

	t    testing.TB
	root string
	init []string
	boot *exec.Cmd // nil: off
	halt chan struct{}
}

// New returns a system with the given init, and with the file system of Debian 12 that most tests share. See NewOf.
func New(t testing.TB, init []string, payload map[string]string) *System {
	t.Helper()
	return NewOf(t, FileSystem(t, "system"), init, payload)
}

// FileSystem returns the path of a file system that root.sh has made in a folder of .cache. The arguments are a release of Debian and the
// names of additional packages.
func FileSystem(t testing.TB, folder string, args ...string) string {
	t.Helper()
	root, err := script(t, "root.sh", append([]string{filepath.Join(machine.Root(t), ".cache", folder)}, args...)...).Output()
	if err != nil {
		t.Fatalf("create the file system: %v", err)
	}
	return strings.TrimSpace(string(root))
}

// NewOf returns a system with the given file system and init. The system is off. Its /payload contains the given
// files: the keys are names in the system, the values are paths on the test host. The system does not change a file system that is a
// folder. If root is the image of a disk, the system uses and changes it.
func NewOf(t testing.TB, root string, init []string, payload map[string]string) *System {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("systems need root")
	}
	dir, err := os.MkdirTemp("", "islet-system-")
	if err != nil {
		t.Fatal(err)
	}
	s := &System{Dir: dir, Console: filepath.Join(dir, "console"), t: t, root: root, init: init}
	t.Cleanup(func() {
		if t.Failed() && s.boot != nil {
			out, _ := s.Try("journalctl -b --no-pager -o short-monotonic 2>/dev/null | tail -60; tail -40 /var/log/islet.log " +
				"2>/dev/null; islet status; ps axfo pid,stat,args | grep -v '\\]$' | tail -40")
			t.Logf("%s", out)
		}
		s.PowerOff()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(dir, "payload"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range payload {
		if out, err := exec.Command("cp", "-r", path, filepath.Join(dir, "payload", name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return s
}

// script returns a command that runs a script in the directory of this file.
func script(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(machine.Root(t), "test/system", name), args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stderr = os.Stderr
	return cmd
}

// Pid returns the PID of the system's init in this process's namespace.
func (s *System) Pid() int { return s.boot.Process.Pid }

// Boot turns the system on, and waits until its init has started all services.
func (s *System) Boot() {
	s.t.Helper()
	console, err := os.OpenFile(s.Console, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer console.Close()
	s.boot = script(s.t, "boot.sh", append([]string{s.root, s.Dir, s.cgroup()}, s.init...)...)
	s.boot.Stdout, s.boot.Stderr = console, console
	s.boot.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	s.halt = make(chan struct{})
	started, halt := make(chan error), s.halt
	go func() { // the kernel sends Pdeathsig when the thread ends
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.boot.Start()
		if started <- err; err == nil {
			<-halt
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	if s.init[0] == Systemd[0] {
		s.Await("test -S /run/systemd/private && systemctl is-system-running --wait")
	} else {
		s.Await("rc-status --runlevel 2>/dev/null | grep -qx default && ! rc-status 2>/dev/null | grep -q starting")
	}
}

// PowerOff kills all processes in the system at once. It has no effect on a system that is off.
func (s *System) PowerOff() {
	s.t.Helper()
	if s.boot == nil {
		return
	}
	s.boot.Process.Kill() // an error means that it has already ended
	s.boot.Wait()         // it was killed
	close(s.halt)
	s.boot = nil
	s.removeCgroups()
}

func (s *System) cgroup() string { return filepath.Base(s.Dir) }

func (s *System) removeCgroups() {
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + s.cgroup())
	if err != nil {
		s.t.Error(err)
	}
	for _, top := range append(tops, "/sys/fs/cgroup/"+s.cgroup()) {
		var dirs []string
		filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.t.Errorf("remove cgroup %s: %v", dir, err)
			}
		}
	}
}

// Command returns a command that runs in the system.
func (s *System) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(s.Pid()), "-m", "-n", "-p", "-u", "-i", "-C", "-r", "-w", "--",
		name}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// Try runs a shell command in the system and returns its output and exit code. Background processes
// of the command must not keep its output open.
func (s *System) Try(command string) (string, int) {
	s.t.Helper()
	out, err := s.Command("sh", "-c", command).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return string(out), 0
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	}
	s.t.Fatalf("%s: %v", command, err)
	return "", 0
}

// Run is like Try, but fails the test if the command fails.
func (s *System) Run(command string) string {
	s.t.Helper()
	out, code := s.Try(command)
	if code != 0 {
		s.t.Fatalf("%s: exit code %d\n%s", command, code, out)
	}
	return out
}

// Await runs a shell command until it succeeds.
func (s *System) Await(command string) string {
	s.t.Helper()
	late := time.After(machine.WaitTimeout)
	for {
		began := time.Now()
		out, code := s.Try(command)
		if code == 0 {
			return out
		}
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.Pid()))
		select {
		case <-time.After(max(20*time.Millisecond, 4*time.Since(began))):
			if err == nil {
				continue
			}
			said, _ := os.ReadFile(s.Console)
			s.t.Fatalf("the system has ended:\n%s", bytes.TrimSpace(said))
		case <-late:
			said, _ := os.ReadFile(s.Console)
			s.t.Fatalf("waited in vain for: %s\n%s\nconsole:\n%s", command, out, bytes.TrimSpace(said))
		}
	}
}

// At returns the path on the test host of a system's file in /var, /run or /payload.
func (s *System) At(path string) string {
	switch {
	case strings.HasPrefix(path, "/var/"), strings.HasPrefix(path, "/payload/"):
		return filepath.Join(s.Dir, path)
	}
	return fmt.Sprintf("/proc/%d/root%s", s.Pid(), path)
}
