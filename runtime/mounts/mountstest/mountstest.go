package mountstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// inside is set in the process that has the namespace.
const inside = "ISLET_TEST_MOUNT_NAMESPACE"

// Main is for TestMain, which exits with the code that it returns. It starts the program of the tests
// once more, which comes here again and calls run. Who is not root is that in a user namespace.
func Main(run func() int) int {
	if os.Getenv(inside) != "" {
		return run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode() // the tests have said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests in a mount namespace of their own:", err)
		return 1
	}
	return 0
}
