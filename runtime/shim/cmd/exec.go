package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalOffset is the offset of the exit code of a command that was killed by a signal, as in shells
// and OCI runtimes.
const signalOffset = 128

// runExec runs a command in a container and returns its exit code. The parameter args is the command line of the OCI runtime. This is an
// exec with --detach that reads the command from file descriptor 3 and writes the PID of the command to pidFile. If the OCI runtime fails,
// runExec returns the exit code of the OCI runtime. The command inherits the standard streams of this process.
func runExec(pidFile string, args []string) (code int, err error) {
	runtime.GOMAXPROCS(1)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("become the parent of the command: %w", err)
	}
	// Wait until the agent has sent the command. Before that, the agent sets the OOM score of this
	// process, which the OCI runtime inherits.
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: 3, Events: unix.POLLIN}}, -1); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	runtime.LockOSThread() // Pdeathsig applies to the thread that starts the OCI runtime
	oci := exec.Command(args[0], args[1:]...)
	oci.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	oci.Stdin, oci.Stdout, oci.Stderr = os.Stdin, os.Stdout, os.Stderr
	oci.ExtraFiles = []*os.File{os.NewFile(3, "command")}
	if err := oci.Run(); err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return exitCode(exit.Sys().(unix.WaitStatus)), nil
		}
		return 0, err
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read the PID of the command: %w", err)
	}
	for fd := range 4 { // the agent waits until the last writer has closed a stream
		unix.Close(fd)
	}
	for {
		var st unix.WaitStatus
		switch ended, err := unix.Wait4(-1, &st, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		case ended == pid:
			return exitCode(st), nil
		}
	}
}

func exitCode(st unix.WaitStatus) int {
	if st.Signaled() {
		return signalOffset + int(st.Signal())
	}
	return st.ExitStatus()
}
