package machine

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Host consists of the namespaces of a machine and its init process. Its processes use the file
// system of the test host, but with their own /run. All processes of the Host end with the process
// that booted it.
type Host struct {
	init *exec.Cmd
	halt chan struct{}
}

// BootHost starts a host and waits until its init is ready. This process's TestMain must call Main
// first.
func BootHost(name string) (*Host, error) {
	init := exec.Command("/proc/self/exe")
	init.Env = append(os.Environ(), initEnv+"="+name)
	init.Stderr = os.Stderr
	init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h, started := &Host{init: init, halt: make(chan struct{})}, make(chan error)
	go func() {
		// The kernel sends Pdeathsig when this thread ends. Without the lock, another goroutine
		// could run on this thread and end it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := init.Start()
		if started <- err; err == nil {
			<-h.halt
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("boot %s: %w", name, err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		h.Halt()
		return nil, fmt.Errorf("boot %s: init wrote %q, %v", name, line, err)
	}
	return h, nil
}

// Pid returns the PID of the host's init in this process's namespace.
func (h *Host) Pid() int { return h.init.Process.Pid }

// Halt kills all processes of the host at once.
func (h *Host) Halt() error {
	err := h.init.Process.Kill()
	defer close(h.halt)
	h.init.Wait() // the error only reports that init was killed; the other processes of its namespace have ended before
	return err
}

// Command returns a command that runs inside the host.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	all := append([]string{"-t", strconv.Itoa(h.Pid()), "-m", "-n", "-p", "-u", "-i", "--", name}, args...)
	return exec.Command("nsenter", all...)
}

// A Process contains the PID of a running process inside a Host, and a channel that signals its
// end.
type Process struct {
	Pid   int           // in this process's namespace
	Ended chan struct{} // closed when the process has ended
}

// StartProcess starts a command that Command returned.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Ended: make(chan struct{})}
	go func() { cmd.Wait(); close(p.Ended) }()
	if p.Pid = childOf(cmd.Process.Pid, p.Ended); p.Pid == 0 {
		<-p.Ended
		return nil, fmt.Errorf("%s ended at once", cmd)
	}
	return p, nil
}

// childOf waits for the child of a process, and returns the child's PID, or 0 if the process ends.
// The program nsenter forks once to enter a PID namespace.
func childOf(pid int, ended <-chan struct{}) int {
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return 0
		}
		if f := strings.Fields(string(b)); len(f) > 0 {
			child, _ := strconv.Atoi(f[0])
			return child
		}
		select {
		case <-ended:
			return 0
		case <-time.After(time.Millisecond):
		}
	}
}
