package machine

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// oddArgument is an argument for the test binary. If it is the first argument, the test binary
// starts another program with unusual process state. The other arguments are MASK PROGRAM
// ARGUMENT...
const oddArgument = "start-oddly"

// OddFile is the file that an agent with unusual process state inherits as descriptors 40 to 43.
const OddFile = "/etc/passwd"

// oddCommand is like Command, but the program inherits a umask and other state that a
// service normally does not have.
func (m *Machine) oddCommand(name string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	return m.Command(self, append([]string{oddArgument, fmt.Sprintf("%o", m.OddUmask), name}, args...)...)
}

// execOddly sets unusual process state of every kind that a process can inherit, and executes the
// program.
func execOddly(args []string) error {
	runtime.LockOSThread()
	mask, err := strconv.ParseInt(args[0], 8, 32)
	if err != nil {
		return err
	}
	unix.Umask(int(mask))
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGCHLD, unix.SIGTSTP, unix.SIGTTOU, unix.SIGUSR1, unix.SIGALRM)
	file, err := unix.Open(OddFile, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	for fd := 40; fd < 44; fd++ {
		if err := unix.Dup2(file, fd); err != nil {
			return err
		}
	}
	for limit, cur := range map[int]uint64{
		unix.RLIMIT_CPU: 3600, unix.RLIMIT_FSIZE: 256 << 20, unix.RLIMIT_NPROC: 10000, unix.RLIMIT_STACK: 256 << 10,
		unix.RLIMIT_DATA: 64 << 30, unix.RLIMIT_AS: 1 << 40, unix.RLIMIT_RSS: 64 << 30,
	} {
		var is unix.Rlimit
		if err := unix.Getrlimit(limit, &is); err != nil {
			return err
		}
		is.Cur = min(cur, is.Max) // only the soft limit, because a process without the privilege cannot raise the hard limit again
		if err := unix.Setrlimit(limit, &is); err != nil {
			return fmt.Errorf("limit %d: %w", limit, err)
		}
	}
	if err := setOddThread(); err != nil {
		return err
	}
	env := append(os.Environ(), "LD_PRELOAD=", "LISTEN_FDS=3", "ODD=1", "TMPDIR=/not/there", "PATH=.:"+os.Getenv("PATH"))
	return unix.Exec(args[1], args[1:], env)
}

// setOddThread changes the state that the kernel has for each thread.
func setOddThread() error {
	const byProcess, idle, noRandom, batch = 1, 3 << 13, 0x0040000, 3
	var priority int32
	var first unix.CPUSet
	first.Set(0)
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 10); err != nil {
		return err
	}
	_, _, scheduler := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, batch, uintptr(unsafe.Pointer(&priority)))
	_, _, class := unix.RawSyscall(unix.SYS_IOPRIO_SET, byProcess, 0, idle)
	_, _, personality := unix.RawSyscall(unix.SYS_PERSONALITY, noRandom, 0, 0)
	if scheduler != 0 || class != 0 || personality != 0 {
		return fmt.Errorf("scheduler: %w, I/O class: %w, personality: %w", scheduler, class, personality)
	}
	mask := unix.Sigset_t{}
	for i := range mask.Val {
		mask.Val[i] = ^mask.Val[i]
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil)
}

// IOPriority returns the I/O class and priority of a process.
func IOPriority(pid int) (uintptr, error) {
	const byProcess = 1
	is, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, byProcess, uintptr(pid), 0)
	if errno != 0 {
		return 0, errno
	}
	return is, nil
}
