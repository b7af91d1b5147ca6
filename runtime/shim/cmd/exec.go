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

// signaled is added to the number of the signal that killed a command. Shells and OCI runtimes do
// the same.
const signaled = 128

// runExec runs args. They are the command line of an OCI runtime that starts a command in a
// container with --detach. It waits for that command and returns its exit code. If the start fails,
// it returns the exit code of the OCI runtime. The OCI runtime writes the PID of the command to
// pidFile, and reads the command from descriptor 3. The command inherits the standard streams of
// this process.
func runExec(pidFile string, args []string) (code int, err error) {
	runtime.GOMAXPROCS(1)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("become the parent of the command: %w", err)
	}
	// The agent sets the OOM score of this process before it sends the command, and the OCI runtime
	// inherits the score. So wait until there is data to read.
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
	for fd := range 4 { // otherwise the agent would not notice when the command closes its streams
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
		return signaled + int(st.Signal())
	}
	return st.ExitStatus()
}
