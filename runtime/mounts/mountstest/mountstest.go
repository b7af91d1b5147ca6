package mountstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// insideVariable is the name of the environment variable that is set in the process in the new mount
// namespace.
const insideVariable = "ISLET_TEST_MOUNT_NAMESPACE"

// Main runs the tests and returns the exit code for TestMain. It starts the test program again in a
// new mount namespace, where Main calls run. If the user is not root, it also creates a user
// namespace, in which the user is root.
func Main(run func() int) int {
	if os.Getenv(insideVariable) != "" {
		return run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread() // the kernel sends Pdeathsig when this thread ends
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode() // the tests have printed their errors
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests in a mount namespace:", err)
		return 1
	}
	return 0
}

// MainIfRoot is like Main. If the user is not root, it only calls run. Use it for a package whose tests are skipped without root.
func MainIfRoot(run func() int) int {
	if os.Getuid() != 0 {
		return run()
	}
	return Main(run)
}
