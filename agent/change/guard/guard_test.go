package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if how := os.Getenv("GUARD_TEST"); how != "" {
		runtime.LockOSThread()
		os.Exit(actor(how))
	}
	os.Exit(m.Run())
}

// actor acts as an agent that begins a trial at once. The parameter how selects the behaviour of this agent and of the agent on trial.
func actor(how string) int {
	role := TakeRole()
	fmt.Printf("%s %d after=%v notify=%v outage=%v pods=%v why=%q\n", kind(role), os.Getpid(), role.After, os.Getenv(notifyVariable) != "",
		role.Outage, role.Pods, role.Why)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch {
	case role.Kind == Guard:
		return role.Supervise(log)
	case role.Kind == Trial:
		return trial(&role, how)
	case role.After:
		return 0
	}
	if how == "orphan" { // a child from an earlier role, such as a shim
		exec.Command("true").Start()
	}
	next := Role{Kind: Guard, Deadline: 2 * time.Second, Program: os.Getenv("GUARD_PROGRAM"), Installed: os.Getenv("GUARD_INSTALLED")}
	if how == "deaf" && os.Getenv("GUARD_LONG") != "" {
		next.Deadline = time.Hour
	}
	fmt.Println(role.Become(next))
	return 1
}

func kind(r Role) string {
	if r.Kind == Agent {
		return "agent"
	}
	return string(r.Kind)
}

func trial(role *Role, how string) int {
	switch how {
	case "good", "orphan":
		role.ReportResult("")
	case "bad":
		role.ReportResult("the port\nis in use")
	case "crash":
		panic("on purpose")
	case "exit":
		return 3
	case "children": // the children inherit the pipe for reports
		c := exec.Command("sleep", "5")
		c.ExtraFiles = []*os.File{role.reports}
		if err := c.Start(); err != nil {
			return 4
		}
		return 3
	case "waits":
		role.ReportWait("the network", false)
	case "pods":
		role.ReportBlamed([]string{"x"})
		role.ReportBlamed([]string{"a", "b"})
		role.ReportWait("2 pods", false)
	case "no pods":
		role.ReportBlamed([]string{"a"})
		role.ReportBlamed(nil)
		role.ReportWait("the network", false)
	case "pods and bad":
		role.ReportBlamed([]string{"DiskPressure"})
		role.ReportResult("the disk")
	case "outage":
		role.ReportWait("the network", false)
		role.ReportWait("the\nserver", true)
	case "closes": // the agent closes all its files, as daemons do
		role.reports.Close()
	case "long":
		role.ReportWait(strings.Repeat("the network", 10_000), false)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	case "last": // the guard ends the agent at the deadline
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		role.ReportResult("")
		return 0
	case "asks": // the guard receives a signal while it ends the agent on trial
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		role.ReportResult("it is no good")
		<-stop
		syscall.Kill(os.Getppid(), syscall.SIGTERM)
		return 0
	case "replaced", "removed":
		return replace(how)
	}
	stop := make(chan os.Signal, 1)
	if how != "deaf" {
		signal.Notify(stop, syscall.SIGTERM)
	}
	select {
	case <-stop:
	case <-time.After(time.Minute): // a limit of the test that is never reached
	}
	return 0
}

// replace simulates a program that is killed after its installation. If the parameter how is not "replaced", the program's file is removed
// and not installed.
func replace(how string) int {
	err := os.Remove(os.Getenv("GUARD_PROGRAM"))
	if how == "replaced" {
		err = errors.Join(err, os.Remove(os.Getenv("GUARD_INSTALLED")), os.Symlink("/bin/echo", os.Getenv("GUARD_INSTALLED")))
	}
	if err != nil {
		fmt.Println(err)
	}
	return 3
}

// play runs the program of this test as an actor. It returns the output, one line for each process.
func play(t *testing.T, how string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "GUARD_TEST="+how, notifyVariable+"=/nowhere")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", how, err, out)
	}
	return string(out)
}

// TestTrials checks that the first agent continues with the same PID after every kind of trial, and that it knows why the trial failed.
func TestTrials(t *testing.T) {
	t.Parallel()
	for how, why := range map[string]string{
		"good": "", "orphan": "", "bad": "the port is in use", "crash": "exit status 2", "exit": "exit status 3", "children": "exit status 3",
		"pods": "pods=[a b] why=\"the node was not as healthy as before within 2s: 2 pods", "no pods": "pods=[] why=\"the node was not as healthy as before within 2s: the network",
		"pods and bad": "pods=[DiskPressure] why=\"the disk",
		"waits":        "within 2s: the network", "outage": "within 2s: the server",
		"hang": "not as healthy as before within 2s", "deaf": "not as healthy as before within 2s", "closes": "not as healthy as before within 2s", "last": "",
		"long": "within 2s: the networkthe network",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			lines := strings.Split(strings.TrimSpace(play(t, how)), "\n")
			if len(lines) != 4 {
				t.Fatalf("%d processes:\n%s", len(lines), strings.Join(lines, "\n"))
			}
			pid := strings.Fields(lines[0])[1]
			for i, want := range []string{"agent " + pid, "guard " + pid, "trial", "agent " + pid} {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("%q, want %s", lines[i], want)
				}
			}
			if strings.Contains(lines[2], pid) || !strings.Contains(lines[2], "notify=false") {
				t.Errorf("the agent on trial: %s", lines[2])
			}
			if last := lines[3]; !strings.Contains(last, "after=true notify=true outage="+strconv.FormatBool(how == "outage")) ||
				!strings.Contains(last, why) || why == "" && !strings.HasSuffix(last, `why=""`) {
				t.Errorf("%q, want %s", last, why)
			}
		})
	}
}

// TestReplaced checks that the installed program runs after a trial, even if the program on trial ended with an error after its
// installation. If its file was removed, the previous agent continues.
func TestReplaced(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]string{"replaced": "\nfirst second\n", "removed": `why="the agent ended: exit status 3`} {
		dir := t.TempDir()
		tried, installed := dir+"/islet-1.new", dir+"/islet"
		if err := errors.Join(os.WriteFile(tried, self, 0o755), os.WriteFile(installed, self, 0o755)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(installed, "first", "second")
		cmd.Env = append(os.Environ(), "GUARD_TEST="+how, "GUARD_PROGRAM="+tried, "GUARD_INSTALLED="+installed)
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", how, err, out)
		}
	}
}

// TestStopped checks that a guard ends when it receives SIGTERM during a trial. It also ends the agent on trial, even if that agent ignores
// SIGTERM.
func TestStopped(t *testing.T) {
	t.Parallel()
	if out := play(t, "asks"); strings.Count(out, "agent") != 1 {
		t.Errorf("a guard that received SIGTERM at the end of a trial continues:\n%s", out)
	}
	for name, sig := range map[string]syscall.Signal{"hang": syscall.SIGTERM, "deaf": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "GUARD_TEST="+name, "GUARD_LONG=yes")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		var text strings.Builder
		buf := make([]byte, 512)
		for pid == 0 {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(buf[:n])
			if _, rest, ok := strings.Cut(text.String(), "trial "); ok && strings.HasSuffix(rest, "\n") {
				fmt.Sscan(rest, &pid)
			}
		}
		cmd.Process.Signal(sig)
		// Both processes can write to the pipe, so the read ends only when both have exited.
		rest, err := readAll(out)
		if err != nil || strings.Contains(rest, "agent") {
			t.Errorf("%v: %q, %v", sig, rest, err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); sig == syscall.SIGTERM && code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

func readAll(r interface{ Read([]byte) (int, error) }) (string, error) {
	var b strings.Builder
	buf := make([]byte, 512)
	for {
		n, err := r.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			if err.Error() == "EOF" {
				err = nil
			}
			return b.String(), err
		}
	}
}

func TestTakeOfNothing(t *testing.T) {
	for _, text := range []string{"", "{", `{"kind":7}`} {
		t.Setenv(roleVariable, text)
		r := TakeRole()
		if r.Kind != Agent || r.After || os.Getenv(roleVariable) != "" {
			t.Errorf("%q: %+v", text, r)
		}
		r.ReportResult("nobody listens")
	}
	data, err := json.Marshal(Role{})
	if err != nil || string(data) != "{}" {
		t.Errorf("%s, %v", data, err)
	}
	reapInherited(context.Background()) // this call does nothing without a service manager
}
