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

// umask is that of the system's own services.
const umask = 0o022

// programs is the PATH of a system service.
const programs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Agent puts right what the agent inherited. It is called once, from the main goroutine
// on the main thread, before anything is opened or started. On success the process may
// have been executed anew. An error names what stays as it is; the agent can run with it.
func Agent() error {
	unix.Umask(umask)
	var errs []string
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Sprintf("%s: %v", what, err))
		}
	}
	note("ignored signals", heedSignals())
	note("limits", unlimited(0, unix.RLIMIT_CPU, unix.RLIMIT_FSIZE))
	environment()
	if changed, err := emptyMask(); err != nil {
		note("signal mask", err)
	} else if changed {
		note("signal mask", again())
	}
	note("open descriptors", closeOnExec(3))
	if errs != nil {
		return fmt.Errorf("inherited state that stays: %s", strings.Join(errs, "; "))
	}
	return nil
}

// Shim is Agent for the parent of containers. What it cannot put right it leaves, as an
// agent without the privilege cannot give its containers better.
func Shim() {
	unix.Umask(umask)
	_ = heedSignals()
	normalLimits(0)
	masked, err := emptyMask()
	odd := normalThread() || masked && err == nil
	_, tried := os.LookupEnv(executed)
	os.Unsetenv(executed)
	if odd && !tried {
		os.Setenv(executed, "1")
		_ = again()
		os.Unsetenv(executed)
	}
}

// executed is set in the environment of a shim that executes itself anew. It does so only
// once: some kernels give every program that they execute a personality of their own.
const executed = "ISLET_SHIM_EXECUTED"

// again executes this program with the state of this thread. It returns only an error.
func again() error {
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// emptyMask unblocks all signals of this thread. It reports whether some were blocked.
func emptyMask() (changed bool, err error) {
	runtime.LockOSThread() // until the end or the exec: other threads keep their masks
	var none, before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &before); err != nil {
		return false, err
	}
	for _, word := range before.Val {
		changed = changed || word != 0
	}
	return changed, nil
}

// sigaction is the kernel's struct of rt_sigaction(2). Only its first word is read here:
// the layout of the rest differs between architectures, and all of it is zero for SIG_DFL.
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

// heedSignals gives ignored signals their default action, as every process inherits that
// they are ignored. SIGHUP and SIGINT, by which a caller such as nohup protects this very
// process, are caught and dropped: only children see a difference.
func heedSignals() error {
	for sig := unix.Signal(1); sig <= lastSignal; sig++ {
		var is sigaction
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&is)), sigsetSize, 0, 0); errno != 0 {
			continue // no such signal here
		}
		if is.handler != sigIgnore {
			continue
		}
		if sig == unix.SIGHUP || sig == unix.SIGINT {
			signal.Notify(make(chan os.Signal, 1), sig) // nobody reads it
			continue
		}
		is = sigaction{handler: sigDefault}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&is)), 0, sigsetSize, 0, 0); errno != 0 {
			return fmt.Errorf("signal %d: %w", sig, errno)
		}
	}
	return nil
}

// unlimited lifts the limits of a process that a shell may set and no pod asked for. Memory and
// processes of pods are bounded by their cgroups.
func unlimited(pid int, resources ...int) error {
	for _, resource := range resources {
		var is unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &is); err != nil {
			return err
		}
		if is.Cur == unix.RLIM_INFINITY && is.Max == unix.RLIM_INFINITY {
			continue
		}
		err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
		if err != nil { // without CAP_SYS_RESOURCE, the hard limit is the end
			err = errors.Join(err, unix.Prlimit(pid, resource, &unix.Rlimit{Cur: is.Max, Max: is.Max}, nil))
		}
		if err != nil && is.Max != unix.RLIM_INFINITY {
			return fmt.Errorf("resource %d stays at %d: %w", resource, is.Max, err)
		}
	}
	return nil
}

// closeOnExec keeps descriptors from first on from the programs that this process starts.
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

// environment takes out what steers the linker and socket activation of children, and
// completes PATH.
func environment() {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "LISTEN_") {
			os.Unsetenv(name)
		}
	}
	var dirs []string
	for _, dir := range slices.Concat(strings.Split(os.Getenv("PATH"), ":"), strings.Split(programs, ":")) {
		if strings.HasPrefix(dir, "/") && !slices.Contains(dirs, dir) { // none is relative to somewhere
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
