package inherit

import (
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Start starts a program of which processes of containers will be children, but which is
// no shim of ours: an OCI runtime that runs a command in a container, a containerd shim.
// It has the limits and the state of a thread that Shim gives to our own; the rest it has
// from the agent. The error is that of cmd.Start. The parent's end must mean nothing to cmd
// (Pdeathsig): the thread that starts it ends at once.
func Start(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		// The thread is not unlocked, so it ends with this goroutine: no other code of the agent
		// may run with the state that it gets here.
		runtime.LockOSThread()
		normalThread()
		done <- cmd.Start()
	}()
	if err := <-done; err != nil {
		return err
	}
	normalLimits(cmd.Process.Pid)
	return nil
}

// normalLimits lifts the limits of a process of which containers will be children, as far
// as this process may. 0 is this process.
func normalLimits(pid int) {
	_ = unlimited(pid, unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_AS, unix.RLIMIT_RSS, unix.RLIMIT_NPROC)
	const usual = 8 << 20 // the kernel's default, from which C libraries take the size of a thread's stack
	var stack unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_STACK, nil, &stack) == nil && stack.Cur < usual {
		stack.Cur = min(usual, stack.Max)
		_ = unix.Prlimit(pid, unix.RLIMIT_STACK, &stack, nil)
	}
}

// normalThread sets nice value, scheduling policy, CPUs, class of input and output, and
// personality of this thread to what a process has by default. It reports whether one was
// different and is right now.
func normalThread() (changed bool) {
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
	// The kernel leaves out what the cgroup does not allow.
	var before, all, after unix.CPUSet
	for i := range all {
		all[i] = ^all[i]
	}
	if unix.SchedGetaffinity(0, &before) == nil && unix.SchedSetaffinity(0, &all) == nil && unix.SchedGetaffinity(0, &after) == nil {
		changed = changed || before != after
	}
	changed = usualIO() || changed
	// The kernel gives a program for 32 bits the first of these bits, whatever was inherited.
	const limit32, ask, normal = 0x0800000, 0xffffffff, 0
	if is, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, ask, 0, 0); errno == 0 && is&^limit32 != normal {
		_, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, normal, 0, 0)
		changed = changed || errno == 0
	}
	return changed
}

// usualIO has the nice value decide again how urgent this thread's input and output is. It
// reports whether a class had been set, such as by ionice.
func usualIO() (changed bool) {
	const (
		thisThread = 1             // IOPRIO_WHO_PROCESS, of ID 0
		none       = 0             // the class by which the nice value decides
		usual      = 4             // what a kernel says then, with or without
		bestEffort = 2<<13 | usual // the class that follows from it
	)
	is, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, thisThread, 0, 0)
	if errno != 0 || is == none || is == usual || is == bestEffort {
		return false
	}
	_, _, errno = unix.RawSyscall(unix.SYS_IOPRIO_SET, thisThread, 0, none)
	return errno == 0
}
