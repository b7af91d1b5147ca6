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

// variable of the environment says what a process was started for. Nothing that this
// process starts sees it.
const variable = "ISLET_GUARD"

// notify is systemd's; only the process that it knows may use it.
const notify = "NOTIFY_SOCKET"

// A Kind is the kind of a process.
type Kind string

// The kinds.
const (
	Agent Kind = ""      // an ordinary agent
	Guard Kind = "guard" // supervises an agent on trial
	Trial Kind = "trial" // an agent on trial
)

// A Role is the role of this process. Its methods except Report must be called on the main
// goroutine, which main locks to the main thread: a child is killed when the thread that started
// it ends, and exec keeps the namespaces of the calling thread.
type Role struct {
	Kind     Kind          `json:"kind,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"` // of a Guard: when the trial has failed
	// Program is the program of the agent on trial, and Installed the one that this process becomes
	// if the trial succeeds. Both are empty if a configuration is on trial.
	Program   string   `json:"program,omitempty"`
	Installed string   `json:"installed,omitempty"`
	Why       string   `json:"why,omitempty"`    // of an Agent: why the trial before it failed
	Outage    bool     `json:"outage,omitempty"` // of an Agent: it failed only because of an outage
	Pods      []string `json:"pods,omitempty"`   // of an Agent: the pods and pressures that alone made it fail
	After     bool     `json:"after,omitempty"`  // of an Agent: the process was a guard or another agent before
	// Of an Agent that skips good configurations with which it could not run on this host: their
	// number, the reason for the newest, and how many times in a row that has happened.
	Passed int    `json:"passed,omitempty"`
	Unfit  string `json:"unfit,omitempty"`
	Falls  int    `json:"falls,omitempty"`

	notify  string         // systemd's socket, for the next role
	reports *os.File       // of a Trial
	asked   chan os.Signal // of a Guard, to end
}

// Take reads the role of this process from its environment. It is called once, before anything
// else is started.
func Take() Role {
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

// Waits tells the guard for what the trial waits. It is the reason of the failure if no other is
// reported. outage means that the configuration or program on trial may not be the cause.
func (r *Role) Waits(why string, outage bool) {
	if r.reports == nil {
		return
	}
	kind := "waits: "
	if outage {
		kind = "outage: "
	}
	io.WriteString(r.reports, kind+strings.Join(strings.Fields(why), " ")+"\n")
}

// Blame tells the guard the pods, and the pressures that pods cause, that are now the only reasons
// for a failure of the trial. An empty list means that there is another reason. Each call replaces
// the previous one. The guard of an older version ignores it.
func (r *Role) Blame(pods []string) {
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

// Report tells the guard the result of the trial. An empty why means that it has succeeded and
// that this is stored. Report does nothing in a process that is not on trial.
func (r *Role) Report(why string) {
	if r.reports == nil {
		return
	}
	line := "good\n"
	if why != "" {
		line = "bad: " + strings.Join(strings.Fields(why), " ") + "\n"
	}
	io.WriteString(r.reports, line) // it fails only if the guard has ended, and then this process is killed
}

// Become replaces this process by one with another role, with the same PID and arguments. It
// returns only if that fails.
func (r *Role) Become(next Role) error { return r.become(program, next) }

func (r *Role) become(program string, next Role) error {
	next.After = true
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	env := append(os.Environ(), variable+"="+string(text))
	if r.notify != "" {
		env = append(without(env, notify), notify+"="+r.notify)
	}
	if err := syscall.Exec(program, os.Args, env); err != nil {
		return fmt.Errorf("become another process: %w", err)
	}
	return nil
}

// program returns the path of this process's program, also after its file was replaced.
const program = "/proc/self/exe"

func without(env []string, name string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}

// Timeouts of a child that was asked to end.
const (
	endGood  = 20 * time.Second
	endBad   = 5 * time.Second
	endAsked = 12 * time.Second // less than a service manager's timeout, more than an agent needs
)

// Watch is the main function of a guard: it starts an agent on trial, and becomes an agent again
// after the trial. It returns an exit code if it was asked to end or has failed; the service
// manager then starts an agent.
func (r *Role) Watch(log *slog.Logger) int {
	runtime.LockOSThread() // main's own, already
	r.asked = make(chan os.Signal, 4)
	signal.Notify(r.asked, syscall.SIGTERM, os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reap(ctx)
	c, err := start(cmp.Or(r.Program, program))
	if err != nil {
		return r.back(log, fmt.Sprintf("the agent on trial could not be started: %v", err))
	}
	log.Info("an agent is on trial", "pid", c.cmd.Process.Pid, "deadline", r.Deadline, "program", r.Program)
	late := time.NewTimer(r.Deadline)
	defer late.Stop()
	select {
	case s := <-r.asked:
		log.Info("the agent on trial ends because it was asked to", "signal", s)
		c.end(endAsked)
		return max(0, c.cmd.ProcessState.ExitCode())
	case said, ok := <-c.said:
		if !ok {
			return r.back(log, fmt.Sprintf("the agent ended: %v; its log says more", c.cmd.ProcessState))
		}
		return r.decided(log, c, said)
	case <-late.C:
		c.end(endBad)
		if said, ok := <-c.said; ok { // a report just before the end
			return r.decided(log, c, said)
		}
		why := fmt.Sprintf("the node was not as well as before within %s", r.Deadline)
		waits, outage := c.waits()
		if waits != "" {
			why += ": " + waits
		}
		r.Outage, r.Pods = outage, c.blamed()
		return r.back(log, why)
	}
}

// decided handles the child's verdict.
func (r *Role) decided(log *slog.Logger, c *child, said string) int {
	if why, bad := strings.CutPrefix(said, "bad: "); bad {
		c.end(endBad)
		r.Pods = c.blamed()
		return r.back(log, why)
	}
	c.end(endGood)
	log.Info("what was on trial has stood it")
	if r.stopped(log) {
		return 0
	}
	if r.Installed != "" {
		log.Error("the program that was tried cannot be started; the one before it goes on", "error", r.become(r.Installed, Role{}))
	}
	return r.back(log, "")
}

// back makes the guard an agent again: with the installed program if the one on trial was
// installed, else with its own.
func (r *Role) back(log *slog.Logger, why string) int {
	next := Role{Why: why, Outage: r.Outage, Pods: r.Pods}
	if r.stopped(log) {
		return 0 // the result is dropped: the trial counts as interrupted
	}
	if why != "" && r.replaced() {
		log.Warn("the program that was tried had stood its trial, and was in its place already: it goes on", "error", why)
		log.Error("the program that was tried cannot be started; the one before it goes on", "error", r.become(r.Installed, next))
	}
	if why != "" {
		log.Error("what was on trial has failed; what was good goes on", "error", why)
	}
	if err := r.Become(next); err != nil {
		log.Error("the agent cannot be started", "error", err)
	}
	return 1
}

// stopped reports whether the guard was asked to end while it ended the child.
func (r *Role) stopped(log *slog.Logger) bool {
	select {
	case s := <-r.asked:
		log.Info("the guard ends because it was asked to", "signal", s)
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

// lastWords is how long the guard waits for the child's report after the child's end. Processes
// that the child left behind may keep the pipe open.
const lastWords = time.Second

// A child is an agent on trial.
type child struct {
	cmd   *exec.Cmd
	said  chan string   // the verdict; closed without one when the child has ended and the pipe is read
	ended chan struct{} // closed when the child has ended and ProcessState is set

	mu   sync.Mutex
	last string // for what the child waits, as last reported
	pods []string
}

// waits returns for what the child waits, as last reported.
func (c *child) waits() (why string, outage bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why, is := strings.CutPrefix(c.last, "outage: "); is {
		return why, true
	}
	return strings.TrimPrefix(c.last, "waits: "), false
}

// blamed returns the pods and pressures that the child last reported with Blame.
func (c *child) blamed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods
}

// longest is the maximum length of a child's line.
const longest = 64 << 10

// listen reads the child's reports until a verdict, or until the child has ended and the pipe is
// closed. A child that only closes the pipe may continue until the deadline.
func (c *child) listen(in io.ReadCloser) {
	defer close(c.said)
	defer in.Close()
	for from := bufio.NewReaderSize(in, longest); ; {
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
	cmd.Env = append(without(os.Environ(), notify), variable+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	c := &child{cmd: cmd, said: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		cmd.Wait() // the result is in ProcessState
		time.AfterFunc(lastWords, func() { in.Close() })
	}()
	go c.listen(in)
	return c, nil
}

// end asks the child to end, and kills it after a timeout.
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
