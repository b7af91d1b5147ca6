package inherit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// This environment variable is set for the processes that the test starts. The first process gives itself an unusual process state. It
// then executes the program under test.
const stage = "INHERIT_TEST_STAGE"

func TestMain(m *testing.M) {
	switch s := os.Getenv(stage); s {
	case "":
		os.Exit(m.Run())
	case "odd agent", "odd shim", "odd parent":
		execOddly(strings.TrimPrefix(s, "odd "))
	case "agent", "shim", "parent":
		start := (*exec.Cmd).Start
		if s == "parent" {
			start = Start
		}
		if s == "shim" {
			ResetShim()
		} else if err := ResetAgent(); err != nil {
			fmt.Println("ERROR", err)
		}
		printInherited(start)
	}
}

// execOddly sets unusual process state in this process and executes its program again.
func execOddly(next string) {
	runtime.LockOSThread()
	unix.Umask(0o077)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGCHLD, unix.SIGTSTP, unix.SIGUSR1)
	mask := unix.Sigset_t{}
	for i := range mask.Val {
		mask.Val[i] = ^mask.Val[i]
	}
	var files, processes, stack unix.Rlimit
	var first unix.CPUSet
	first.Set(0)
	for _, err := range []error{
		unix.Getrlimit(unix.RLIMIT_NOFILE, &files), unix.Getrlimit(unix.RLIMIT_NPROC, &processes), unix.Getrlimit(unix.RLIMIT_STACK, &stack),
		unix.SchedSetaffinity(0, &first),
		unix.Setpriority(unix.PRIO_PROCESS, 0, 10),
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: unix.RLIM_INFINITY}),
		unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil),
		unix.Dup2(1, 40),
	} {
		if err != nil {
			fmt.Println("ERROR", err)
		}
	}
	const byProcess, idle = 1, 3 << 13
	if _, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_SET, byProcess, 0, idle); errno != 0 {
		fmt.Println("ERROR", errno)
	}
	if err := limit(files, processes, stack); err != nil {
		fmt.Println("ERROR", err)
	}
	env := []string{stage + "=" + next, "PATH=.:/nowhere", "LD_PRELOAD=", "LISTEN_FDS=3", "TMPDIR=/not/there"}
	if next == "shim" { // the agent starts it with another PATH
		env[1] = "PATH=" + servicePath
	}
	fmt.Println("ERROR", unix.Exec("/proc/self/exe", os.Args[:1], env))
}

func limit(files, processes, stack unix.Rlimit) error {
	files.Cur, processes.Cur, stack.Cur = 64, 10000, 1<<20
	return errors.Join(unix.Setrlimit(unix.RLIMIT_STACK, &stack), unix.Setrlimit(unix.RLIMIT_NOFILE, &files),
		unix.Setrlimit(unix.RLIMIT_NPROC, &processes))
}

// printInherited prints the process state that a child of this process inherits.
func printInherited(start func(*exec.Cmd) error) {
	cmd := exec.Command("/bin/sh", "-c",
		`read -r line; umask; grep -E '^(Sig(Blk|Ign)|Cpus_allowed):' /proc/self/status; grep -E '^Max (file size|processes|stack)' /proc/self/limits
		echo nice $(cut -d' ' -f19 /proc/self/stat); test -e /proc/self/fd/40 && echo descriptor 40; env`)
	in, err := cmd.StdinPipe()
	if err != nil {
		fmt.Println("ERROR", err)
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := start(cmd); err != nil {
		fmt.Println("ERROR", err)
	}
	const byProcess = 1
	is, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, byProcess, uintptr(cmd.Process.Pid), 0)
	fmt.Println("class", is>>13, errno)
	_, err = in.Write([]byte("look\n"))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		fmt.Println("ERROR", err)
	}
}

// TestInherited starts programs from a parent process whose state is unusual in every respect. It checks the state that the children of
// these programs inherit.
func TestInherited(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to lift limits")
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	cpus := regexp.MustCompile(`(?m)^Cpus_allowed:\s.*`).FindString(string(own))
	for _, program := range []string{"agent", "shim", "parent"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), stage+"=odd "+program)
		raw, err := cmd.CombinedOutput()
		out := string(raw)
		if err != nil || strings.Contains(out, "ERROR") {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		for _, want := range map[string][]string{
			"agent":  {"0022\n", "SigBlk:\t0000000000000000\n", "nice 10\n", "PATH=/nowhere:/usr/local/sbin:"},
			"shim":   {"0022\n", "SigBlk:\t0000000000000000\n", "nice 0\n", cpus + "\n"},
			"parent": {"0022\n", "SigBlk:\t0000000000000000\n", "nice 0\n", cpus + "\n", "PATH=/nowhere:/usr/local/sbin:"},
		}[program] {
			if !strings.Contains(out, want) {
				t.Errorf("%s: a child does not have %q:\n%s", program, want, out)
			}
		}
		for _, line := range strings.Split(out, "\n") {
			f := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "SigIgn:"):
				if n, err := strconv.ParseUint(f[1], 16, 64); err != nil || n != 0 {
					t.Errorf("%s: a child ignores signals %s", program, f[1])
				}
			case strings.HasPrefix(line, "Max file size") && f[3] != "unlimited",
				strings.HasPrefix(line, "Max processes") && program != "agent" && f[2] != f[3],
				strings.HasPrefix(line, "Max stack") && program != "agent" && f[3] == "1048576",
				strings.HasPrefix(line, "class 3") && program != "agent",
				strings.HasPrefix(line, executedVariable),
				program != "shim" && (strings.HasPrefix(line, "LD_") || strings.HasPrefix(line, "LISTEN_") || strings.HasPrefix(line, "TMPDIR")),
				program != "shim" && line == "descriptor 40":
				t.Errorf("%s: a child has %s", program, line)
			}
		}
	}
}
