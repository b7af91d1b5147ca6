package inherit

import (
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Start starts a program other than islet's shim that will be the parent of containers' processes: an OCI runtime that
// runs a command in a container, or a containerd shim. The program has the resource limits and the thread state that
// ResetShim sets. It inherits the rest of its state from the agent. Start returns the error of cmd.Start. The command
// must not set Pdeathsig: the kernel would send this signal at once, because the thread that starts the program ends.
func Start(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		// The thread stays locked, so it ends with this goroutine. No other code of the agent may
		// run with the state that is set here.
		runtime.LockOSThread()
		normalizeThread()
		done <- cmd.Start()
	}()
	if err := <-done; err != nil {
		return err
	}
	setNormalLimits(cmd.Process.Pid)
	return nil
}

// setNormalLimits removes the limits of a process that will be the parent of containers, if this
// process has the privilege. pid 0 means this process.
func setNormalLimits(pid int) {
	_ = liftLimits(pid, unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_AS, unix.RLIMIT_RSS, unix.RLIMIT_NPROC)
	const usual = 8 << 20 // the kernel's default, which C libraries use as the size of a thread's stack
	var stack unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_STACK, nil, &stack) == nil && stack.Cur < usual {
		stack.Cur = min(usual, stack.Max)
		_ = unix.Prlimit(pid, unix.RLIMIT_STACK, &stack, nil)
	}
}

// normalizeThread sets the nice value, scheduling policy, CPUs, I/O priority and personality of
// this thread to the defaults of a process. It reports whether it changed one of them.
func normalizeThread() (changed bool) {
	runtime.LockOSThread()
	const byDefault = 20 // the system call returns 20 minus the nice value
	if is, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && is != byDefault {
		changed = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) == nil
	}
	policy, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	if errno == 0 && policy != unix.SCHED_NORMAL {
		var priority int32
		_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&priority)))
		changed = changed || errno == 0
	}
	// The kernel ignores CPUs that the cgroup does not allow.
	var before, all, after unix.CPUSet
	for i := range all {
		all[i] = ^all[i]
	}
	if unix.SchedGetaffinity(0, &before) == nil && unix.SchedSetaffinity(0, &all) == nil && unix.SchedGetaffinity(0, &after) == nil {
		changed = changed || before != after
	}
	changed = resetIOPriority() || changed
	// The kernel sets the limit32 bit for every 32-bit program.
	const limit32, ask, normal = 0x0800000, 0xffffffff, 0
	if is, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, ask, 0, 0); errno == 0 && is&^limit32 != normal {
		_, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, normal, 0, 0)
		changed = changed || errno == 0
	}
	return changed
}

// resetIOPriority removes the I/O priority class of this thread, so that its nice value determines
// its I/O priority. It reports whether a class was set, for example by ionice.
func resetIOPriority() (changed bool) {
	const (
		thisThread = 1             // IOPRIO_WHO_PROCESS with ID 0, this thread
		none       = 0             // with this class, the nice value determines the priority
		usual      = 4             // the priority that kernels report in that case, with or without the class
		bestEffort = 2<<13 | usual // the class that follows from the nice value 0
	)
	is, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, thisThread, 0, 0)
	if errno != 0 || is == none || is == usual || is == bestEffort {
		return false
	}
	_, _, errno = unix.RawSyscall(unix.SYS_IOPRIO_SET, thisThread, 0, none)
	return errno == 0
}
