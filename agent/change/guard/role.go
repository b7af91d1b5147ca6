package guard

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// roleVariable is the name under which the environment contains the role of a process. TakeRole removes it, so that no
// other child process inherits the role.
const roleVariable = "ISLET_GUARD"

// notifyVariable is the name under which the environment contains the address of systemd's notification socket. Only the main
// process may use the socket.
const notifyVariable = "NOTIFY_SOCKET"

// A Kind is the role of a process in a trial.
type Kind string

// The possible values of Kind.
const (
	Agent Kind = ""      // an ordinary agent
	Guard Kind = "guard" // supervises an agent on trial
	Trial Kind = "trial" // an agent on trial
)

// A Role describes whether this process is an ordinary agent, a guard or an agent on trial, with the parameters of that role. Its methods,
// except the methods for reports, must be called on the main goroutine, which main locks to the main thread. There are two reasons: a child
// is killed when the thread that started it ends, and exec keeps the namespaces of the calling thread.
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

	notifySocket string         // path of systemd's socket, for the next role
	reports      *os.File       // for a Trial
	signals      chan os.Signal // for a Guard: signals that request its end
}

// TakeRole reads the role of this process from its environment. It is called once, before anything
// else is started.
func TakeRole() Role {
	r := Role{}
	text := os.Getenv(roleVariable)
	os.Unsetenv(roleVariable)
	if text != "" && json.Unmarshal([]byte(text), &r) != nil {
		r = Role{}
	}
	r.notifySocket = os.Getenv(notifyVariable)
	if r.Kind == Trial {
		syscall.CloseOnExec(reportFD)
		r.reports = os.NewFile(reportFD, "guard")
	}
	return r
}

// IsService reports whether a guard, or a service manager with a notification socket, started this process. It must be called before
// TakeRole.
func IsService() bool { return os.Getenv(notifyVariable) != "" || os.Getenv(roleVariable) != "" }

// ReportWait reports to the guard the condition that the trial is waiting for. The condition becomes the reason for the failure if no other
// reason is reported. If outage is true, the cause is possibly an outage, and not the configuration or program on trial.
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

// ReportBlamed reports pods, and pressures caused by pods, to the guard. The list is empty unless these pods and pressures are the only
// reasons why the trial has not succeeded yet. Each call replaces the list of the previous call. A guard of an older version ignores the
// list.
func (r *Role) ReportBlamed(pods []string) {
	if r.reports != nil {
		io.WriteString(r.reports, blameText+strings.Join(pods[:min(len(pods), maxBlamed)], ",")+"\n")
	}
}

const (
	blameText = "pods: "
	maxBlamed = 500
)

// reportFD is the file descriptor through which a child reports.
const reportFD = 3

// ReportResult reports the result of the trial to the guard. The parameter why is the reason for a failure. An empty why means that the
// trial has succeeded and that the success is stored. ReportResult does nothing in a process that is not on trial.
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
func (r *Role) Become(next Role) error { return r.become(ownProgram, next) }

func (r *Role) become(program string, next Role) error {
	next.After = true
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	env := append(os.Environ(), roleVariable+"="+string(text))
	if r.notifySocket != "" {
		env = append(withoutVariable(env, notifyVariable), notifyVariable+"="+r.notifySocket)
	}
	if err := syscall.Exec(program, os.Args, env); err != nil {
		return fmt.Errorf("replace the process: %w", err)
	}
	return nil
}

// ownProgram is a link to the executable of this process. It also works after the executable was replaced on disk.
const ownProgram = "/proc/self/exe"

func withoutVariable(env []string, name string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}
