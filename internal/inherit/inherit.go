package inherit

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// serviceUmask is the umask of system services.
const serviceUmask = 0o022

// servicePath is the PATH of a system service.
const servicePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ResetAgent resets the state that the agent inherited. It must be called once, from the main
// goroutine on the main thread, before the process opens a file or starts a program. It may execute
// the program again. An error lists the state that could not be reset. The agent can run in spite
// of it.
func ResetAgent() error {
	unix.Umask(serviceUmask)
	var errs []string
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Sprintf("%s: %v", what, err))
		}
	}
	note("ignored signals", resetIgnoredSignals())
	note("limits", liftLimits(0, unix.RLIMIT_CPU, unix.RLIMIT_FSIZE))
	cleanEnvironment()
	if changed, err := emptyMask(); err != nil {
		note("signal mask", err)
	} else if changed {
		note("signal mask", reexec())
	}
	note("open descriptors", closeOnExec(3))
	if errs != nil {
		return fmt.Errorf("cannot reset inherited state: %s", strings.Join(errs, "; "))
	}
	return nil
}

// ResetShim resets the state of a process that is the parent of containers. It ignores errors,
// because a process without the privilege cannot provide a better state for its containers.
func ResetShim() {
	unix.Umask(serviceUmask)
	_ = resetIgnoredSignals()
	setNormalLimits(0)
	masked, err := emptyMask()
	odd := normalizeThread() || masked && err == nil
	_, tried := os.LookupEnv(executedVariable)
	os.Unsetenv(executedVariable)
	if odd && !tried {
		os.Setenv(executedVariable, "1")
		_ = reexec()
		os.Unsetenv(executedVariable)
	}
}

// executedVariable is set in the environment of a shim that executes itself again. A shim must not execute itself
// twice. Some kernels set the personality of every program at its start. On such a kernel the state would differ
// again after each execution.
const executedVariable = "ISLET_SHIM_EXECUTED"

// reexec executes this program again with the state of this thread. It returns only on error.
func reexec() error {
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// emptyMask unblocks all signals of this thread. It reports whether any were blocked.
func emptyMask() (changed bool, err error) {
	runtime.LockOSThread() // never unlocked, because the masks of other threads are unchanged; this thread executes the program again
	var none, before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &before); err != nil {
		return false, err
	}
	for _, word := range before.Val {
		changed = changed || word != 0
	}
	return changed, nil
}

// sigaction is the kernel's struct of rt_sigaction(2). Only its first word is read, because the
// layout of the rest differs between architectures. All of it is zero for SIG_DFL.
type sigaction struct {
	handler uintptr
	rest    [8]uintptr
}

const (
	sigDefault = 0
	sigIgnore  = 1
	sigsetSize = 8
	lastSignal = 64
)

// resetIgnoredSignals sets the default action for ignored signals, because child processes inherit ignored signals.
// SIGHUP and SIGINT are an exception, because a caller such as nohup sets them to ignored to protect this process. If
// one of these two signals is ignored, the process catches and drops it. So the process still survives the signal, and
// its child processes have the default action.
func resetIgnoredSignals() error {
	for sig := unix.Signal(1); sig <= lastSignal; sig++ {
		var is sigaction
		if errno := rtSigaction(sig, nil, &is); errno != 0 {
			continue // no such signal
		}
		if is.handler != sigIgnore {
			continue
		}
		if sig == unix.SIGHUP || sig == unix.SIGINT {
			signal.Notify(make(chan os.Signal, 1), sig) // signals are dropped, because nothing reads the channel
			continue
		}
		is = sigaction{handler: sigDefault}
		if errno := rtSigaction(sig, &is, nil); errno != 0 {
			return fmt.Errorf("signal %d: %w", sig, errno)
		}
	}
	return nil
}

func rtSigaction(sig unix.Signal, set, get *sigaction) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION,
		uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), sigsetSize, 0, 0)
	return errno
}

// liftLimits removes resource limits of a process. A shell may have set such limits. Cgroups limit
// the memory and processes of pods.
func liftLimits(pid int, resources ...int) error {
	for _, resource := range resources {
		var is unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &is); err != nil {
			return err
		}
		if is.Cur == unix.RLIM_INFINITY && is.Max == unix.RLIM_INFINITY {
			continue
		}
		err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
		if err != nil { // without CAP_SYS_RESOURCE, raise the soft limit to the hard limit
			err = errors.Join(err, unix.Prlimit(pid, resource, &unix.Rlimit{Cur: is.Max, Max: is.Max}, nil))
		}
		if err != nil && is.Max != unix.RLIM_INFINITY {
			return fmt.Errorf("resource %d stays at %d: %w", resource, is.Max, err)
		}
	}
	return nil
}

// closeOnExec sets the close-on-exec flag of the descriptor with the given number, and of all descriptors with higher
// numbers. So programs that this process starts do not inherit these descriptors.
func closeOnExec(first int) error {
	err := unix.CloseRange(uint(first), math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // a kernel before 5.11
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// cleanEnvironment removes variables that affect the dynamic linker and the socket activation of
// child processes, adds missing directories to PATH, and removes an invalid TMPDIR.
func cleanEnvironment() {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "LISTEN_") {
			os.Unsetenv(name)
		}
	}
	var dirs []string
	for _, dir := range slices.Concat(strings.Split(os.Getenv("PATH"), ":"), strings.Split(servicePath, ":")) {
		if strings.HasPrefix(dir, "/") && !slices.Contains(dirs, dir) { // without relative directories
			dirs = append(dirs, dir)
		}
	}
	os.Setenv("PATH", strings.Join(dirs, ":"))
	if dir := os.Getenv("TMPDIR"); dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !strings.HasPrefix(dir, "/") {
			os.Unsetenv("TMPDIR")
		}
	}
}
