package guard

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
)

// rollBack returns to the previous program or configuration after a trial. Supervise decides when (supervise.go), and package trial decides
// whether the node is healthy (agent/change/trial/judge.go). The times are in agent/change/configure/program_trial.go, and for a
// configuration in internal/config/defaults_edge.go.
//
// rollBack replaces the guard by an agent, which runs the guard's own program. If the program on trial was already
// installed, the agent runs that program instead. If the guard cannot be replaced, rollBack returns an exit code.
func (r *Role) rollBack(log *slog.Logger, why string) int {
	next := Role{Why: why, Outage: r.Outage, Pods: r.Pods}
	if r.wasSignaled(log) {
		return 0 // the result is lost, so the trial counts as interrupted
	}
	if why != "" && r.isProgramReplaced() {
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

// isProgramReplaced reports whether the program on trial no longer exists at its path, because it was
// renamed to Installed.
func (r *Role) isProgramReplaced() bool {
	if r.Program == "" || r.Installed == "" {
		return false
	}
	_, err := os.Lstat(r.Program)
	return errors.Is(err, fs.ErrNotExist)
}
