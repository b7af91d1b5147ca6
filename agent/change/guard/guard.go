package guard

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// variable is the environment variable that contains the role of this process. The role's other child processes do
// not inherit it.
const variable = "ISLET_GUARD"

// notify is the environment variable that contains the address of systemd's notification socket. Only the main process
// may use the socket.
const notify = "NOTIFY_SOCKET"

// A Kind is the kind of a process.
type Kind string

// The kinds.
const (
	Agent Kind = ""      // an ordinary agent
	Guard Kind = "guard" // supervises an agent on trial
	Trial Kind = "trial" // an agent on trial
)

// A Role is the role of this process. Its methods except Report must be called on the main goroutine, which main
// locks to the main thread. A child is killed when the thread that started it ends. exec keeps the namespaces of the
// calling thread.
type Role struct {
	Kind     Kind          `json:"kind,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"` // for a Guard: the trial fails after this time
	// Program is the program of the agent on trial. Installed is the program that this process becomes if the trial
	// succeeds. Both are empty if a configuration is on trial.
	Program   string   `json:"program,omitempty"`
	Installed string   `json:"installed,omitempty"`
	Why       string   `json:"why,omitempty"`    // for an Agent: why the preceding trial failed
	Outage    bool     `json:"outage,omitempty"` // for an Agent: the trial failed only because of an outage
	Pods      []string `json:"pods,omitempty"`   // for an Agent: the pods and pressures that were the only reason for the failure
	After     bool     `json:"after,omitempty"`  // for an Agent: this process had another role before
	// An Agent skips good configurations with which it cannot run on this host. Passed is the number of skipped
	// configurations, UnfitReason is the error of the newest one, and Fallbacks counts how often in a row the agent
	// has skipped one.
	Passed      int    `json:"passed,omitempty"`
	UnfitReason string `json:"unfit,omitempty"`
	Fallbacks   int    `json:"falls,omitempty"`

	notify  string         // path of systemd's socket, for the next role
	reports *os.File       // for a Trial
	signals chan os.Signal // for a Guard: signals that request its end
}

// TakeRole reads the role of this process from its environment. It is called once, before anything
// else is started.
func TakeRole() Role {
	r := Role{}
	text := os.Getenv(variable)
	os.Unsetenv(variable)
	if text != "" && json.Unmarshal([]byte(text), &r) != nil {
		r = Role{}
	}
	r.notify = os.Getenv(notify)
	if r.Kind == Trial {
		syscall.CloseOnExec(pipe)
		r.reports = os.NewFile(pipe, "guard")
	}
	return r
}

// ReportWait reports to the guard the condition for which the trial waits. It becomes the reason of the failure if no
// other is reported. outage means that the configuration or program on trial may not be the cause.
func (r *Role) ReportWait(why string, outage bool) {
	if r.reports == nil {
		return
	}
	kind := "waits: "
	if outage {
		kind = "outage: "
	}
	io.WriteString(r.reports, kind+strings.Join(strings.Fields(why), " ")+"\n")
}

// ReportBlamed reports to the guard that only these pods, and pressures that pods cause, keep the trial from succeeding. An
// empty list means that there are other reasons. Each call replaces the list of the previous one. The guard of an
// older version ignores it.
func (r *Role) ReportBlamed(pods []string) {
	if r.reports != nil {
		io.WriteString(r.reports, blame+strings.Join(pods[:min(len(pods), maxBlamed)], ",")+"\n")
	}
}

const (
	blame     = "pods: "
	maxBlamed = 500
)

// pipe is the file descriptor through which a child reports.
const pipe = 3

// ReportResult reports the result of the trial to the guard. An empty why means that the trial has succeeded and that the
// success is stored. Report does nothing in a process that is not on trial.
func (r *Role) ReportResult(why string) {
	if r.reports == nil {
		return
	}
	line := "good\n"
	if why != "" {
		line = "bad: " + strings.Join(strings.Fields(why), " ") + "\n"
	}
	io.WriteString(r.reports, line) // this fails only if the guard has ended, and then this process is killed
}

// Become replaces this process with one that has another role, but the same PID and arguments. It returns only if
// that fails.
func (r *Role) Become(next Role) error { return r.become(program, next) }

func (r *Role) become(program string, next Role) error {
	next.After = true
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	env := append(os.Environ(), variable+"="+string(text))
	if r.notify != "" {
		env = append(withoutVariable(env, notify), notify+"="+r.notify)
	}
	if err := syscall.Exec(program, os.Args, env); err != nil {
		return fmt.Errorf("replace the process: %w", err)
	}
	return nil
}

// program returns the path of this process's program. It also works after the file was replaced.
const program = "/proc/self/exe"

func withoutVariable(env []string, name string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}

// Times to wait for a child after SIGTERM.
const (
	endGood    = 20 * time.Second
	endBad     = 5 * time.Second
	endStopped = 12 * time.Second // shorter than a service manager's timeout, longer than an agent needs
)

// Supervise is the main function of a guard. It starts an agent on trial, and replaces itself by an agent after the
// trial. It returns an exit code if it received a signal or has failed. The service manager then starts an agent.
func (r *Role) Supervise(log *slog.Logger) int {
	runtime.LockOSThread() // main has locked it already
	r.signals = make(chan os.Signal, 4)
	signal.Notify(r.signals, syscall.SIGTERM, os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reap(ctx)
	c, err := start(cmp.Or(r.Program, program))
	if err != nil {
		return r.rollBack(log, fmt.Sprintf("the agent on trial could not be started: %v", err))
	}
	log.Info("an agent is on trial", "pid", c.cmd.Process.Pid, "deadline", r.Deadline, "program", r.Program)
	late := time.NewTimer(r.Deadline)
	defer late.Stop()
	select {
	case s := <-r.signals:
		log.Info("the guard ends the agent on trial because of a signal", "signal", s)
		c.end(endStopped)
		return max(0, c.cmd.ProcessState.ExitCode())
	case said, ok := <-c.said:
		if !ok {
			return r.rollBack(log, fmt.Sprintf("the agent ended: %v; its log says more", c.cmd.ProcessState))
		}
		return r.handleVerdict(log, c, said)
	case <-late.C:
		c.end(endBad)
		if said, ok := <-c.said; ok { // a report that was sent just before the end
			return r.handleVerdict(log, c, said)
		}
		why := fmt.Sprintf("the node was not as healthy as before within %s", r.Deadline)
		waits, outage := c.waits()
		if waits != "" {
			why += ": " + waits
		}
		r.Outage, r.Pods = outage, c.blamed()
		return r.rollBack(log, why)
	}
}

// handleVerdict handles the child's verdict.
func (r *Role) handleVerdict(log *slog.Logger, c *child, said string) int {
	if why, bad := strings.CutPrefix(said, "bad: "); bad {
		c.end(endBad)
		r.Pods = c.blamed()
		return r.rollBack(log, why)
	}
	c.end(endGood)
	log.Info("the trial has succeeded")
	if r.stopped(log) {
		return 0
	}
	if r.Installed != "" {
		log.Error("the new program cannot be started; the previous one continues", "error", r.become(r.Installed, Role{}))
	}
	return r.rollBack(log, "")
}

// rollBack replaces the guard by an agent. The agent runs the guard's own program, or the program on trial if that was
// installed. rollBack returns an exit code if that fails.
func (r *Role) rollBack(log *slog.Logger, why string) int {
	next := Role{Why: why, Outage: r.Outage, Pods: r.Pods}
	if r.stopped(log) {
		return 0 // the result is lost, so the trial counts as interrupted
	}
	if why != "" && r.replaced() {
		log.Warn("the agent on trial failed after its program was installed; the program stays installed", "error", why)
		log.Error("the new program cannot be started; the previous one continues", "error", r.become(r.Installed, next))
	}
	if why != "" {
		log.Error("the trial has failed; the agent starts with the previous configuration and program", "error", why)
	}
	if err := r.Become(next); err != nil {
		log.Error("the agent cannot be started", "error", err)
	}
	return 1
}

// stopped reports whether the guard received a signal while it was ending the child.
func (r *Role) stopped(log *slog.Logger) bool {
	select {
	case s := <-r.signals:
		log.Info("the guard ends because of a signal", "signal", s)
		return true
	default:
		return false
	}
}

// replaced reports whether the program on trial no longer exists at its path, because it was
// renamed to Installed.
func (r *Role) replaced() bool {
	if r.Program == "" || r.Installed == "" {
		return false
	}
	_, err := os.Lstat(r.Program)
	return errors.Is(err, fs.ErrNotExist)
}

// lastWords is how long the guard waits for the child's report after the child has ended. The limit is needed because
// descendants of the child may keep the pipe open.
const lastWords = time.Second

// A child is an agent on trial.
type child struct {
	cmd   *exec.Cmd
	said  chan string   // the verdict; closed without a verdict when the child has ended and its reports have been read
	ended chan struct{} // closed when the child has ended and ProcessState is set

	mu   sync.Mutex
	last string   // the last report of ReportWait
	pods []string // the last report of ReportBlamed
}

// waits returns the condition that the child last reported with Waits.
func (c *child) waits() (why string, outage bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why, is := strings.CutPrefix(c.last, "outage: "); is {
		return why, true
	}
	return strings.TrimPrefix(c.last, "waits: "), false
}

// blamed returns the pods and pressures that the child last reported with ReportBlamed.
func (c *child) blamed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods
}

// maxLine is the maximum length of a line in the child's reports.
const maxLine = 64 << 10

// listen reads the child's reports until it reads a verdict, or until the child has ended and the pipe is closed. A
// child that only closes the pipe may run until the deadline.
func (c *child) listen(in io.ReadCloser) {
	defer close(c.said)
	defer in.Close()
	for from := bufio.NewReaderSize(in, maxLine); ; {
		text, more, err := from.ReadLine()
		line := strings.TrimSpace(string(text))
		for more && err == nil { // skip the rest of a line that is too long
			_, more, err = from.ReadLine()
		}
		switch {
		case line == "good" || strings.HasPrefix(line, "bad: "):
			c.said <- line
			return
		case strings.HasPrefix(line+" ", blame):
			c.mu.Lock()
			c.pods = strings.FieldsFunc(strings.TrimPrefix(line+" ", blame), func(r rune) bool { return r == ',' || r == ' ' })
			c.pods = c.pods[:min(len(c.pods), maxBlamed)]
			c.mu.Unlock()
		case line != "":
			c.mu.Lock()
			c.last = line
			c.mu.Unlock()
		}
		if err != nil {
			<-c.ended
			return
		}
	}
}

func start(program string) (*child, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	text, err := json.Marshal(Role{Kind: Trial})
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	cmd := exec.Command(program)
	cmd.Args = os.Args
	cmd.Env = append(withoutVariable(os.Environ(), notify), variable+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	c := &child{cmd: cmd, said: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		cmd.Wait() // ProcessState contains the result
		time.AfterFunc(lastWords, func() { in.Close() })
	}()
	go c.listen(in)
	return c, nil
}

// end sends SIGTERM to the child, and kills it if it has not ended within the timeout.
func (c *child) end(within time.Duration) {
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
		return
	case <-time.After(within):
	}
	c.cmd.Process.Kill()
	<-c.ended
}
