package inherit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stage is set in the processes that the test starts: an odd parent, which becomes the
// program in question.
const stage = "INHERIT_TEST_STAGE"

func TestMain(m *testing.M) {
	switch s := os.Getenv(stage); s {
	case "":
		os.Exit(m.Run())
	case "odd agent", "odd shim":
		odd(strings.TrimPrefix(s, "odd "))
	case "agent", "shim":
		if s == "agent" {
			if err := Agent(); err != nil {
				fmt.Println("ERROR", err)
			}
		} else {
			Shim()
		}
		show()
	}
}

// odd makes the state of this process what no program expects, and executes it anew.
func odd(next string) {
	runtime.LockOSThread()
	unix.Umask(0o077)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGCHLD, unix.SIGTSTP, unix.SIGUSR1)
	mask := unix.Sigset_t{}
	for i := range mask.Val {
		mask.Val[i] = ^mask.Val[i]
	}
	var files, processes unix.Rlimit
	for _, err := range []error{
		unix.Getrlimit(unix.RLIMIT_NOFILE, &files), unix.Getrlimit(unix.RLIMIT_NPROC, &processes),
		unix.Setpriority(unix.PRIO_PROCESS, 0, 10),
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: unix.RLIM_INFINITY}),
		unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil),
		unix.Dup2(1, 40),
	} {
		if err != nil {
			fmt.Println("ERROR", err)
		}
	}
	if err := limit(files, processes); err != nil {
		fmt.Println("ERROR", err)
	}
	env := []string{stage + "=" + next, "PATH=.:/nowhere", "LD_PRELOAD=", "LISTEN_FDS=3", "TMPDIR=/not/there"}
	if next == "shim" { // which the agent starts with a PATH of its own
		env[1] = "PATH=" + programs
	}
	fmt.Println("ERROR", unix.Exec("/proc/self/exe", os.Args[:1], env))
}

func limit(files, processes unix.Rlimit) error {
	files.Cur, processes.Cur = 64, 10000
	return errors.Join(unix.Setrlimit(unix.RLIMIT_NOFILE, &files), unix.Setrlimit(unix.RLIMIT_NPROC, &processes))
}

// show prints what a child of this process inherits.
func show() {
	out, err := exec.Command("/bin/sh", "-c", `umask; grep -E '^(Sig(Blk|Ign)):' /proc/self/status; grep -E '^Max (file size|processes)' /proc/self/limits
		echo nice $(cut -d' ' -f19 /proc/self/stat); test -e /proc/self/fd/40 && echo descriptor 40; env`).CombinedOutput()
	fmt.Printf("%s", out)
	if err != nil {
		fmt.Println("ERROR", err)
	}
}

// TestInherited has a parent that left everything odd.
func TestInherited(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to lift limits")
	}
	for _, program := range []string{"agent", "shim"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), stage+"=odd "+program)
		raw, err := cmd.CombinedOutput()
		out := string(raw)
		if err != nil || strings.Contains(out, "ERROR") {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		for _, want := range map[string][]string{
			"agent": {"0022\n", "SigBlk:\t0000000000000000\n", "nice 10\n", "PATH=/nowhere:/usr/local/sbin:"},
			"shim":  {"0022\n", "SigBlk:\t0000000000000000\n", "nice 0\n"},
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
				strings.HasPrefix(line, "Max processes") && program == "shim" && f[2] != f[3],
				strings.HasPrefix(line, executed),
				program == "agent" && (strings.HasPrefix(line, "LD_") || strings.HasPrefix(line, "LISTEN_") || strings.HasPrefix(line, "TMPDIR")),
				program == "agent" && line == "descriptor 40":
				t.Errorf("%s: a child has %s", program, line)
			}
		}
	}
}
