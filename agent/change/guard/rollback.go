package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
)

// The guard returns to the previous program or configuration if the agent on trial cannot be started, ends, reports a
// failure, or reports no success until the deadline. Package trial decides whether the node is healthy
// (agent/change/trial/judge.go). The times are in agent/change/trial/program_times.go, and for a configuration in
// internal/config/defaults_edge.go.

// handleDeadline handles a child that has reported no verdict until the deadline.
func (r *Role) handleDeadline(log *slog.Logger, c *child) int {
	why := fmt.Sprintf("the node was not as healthy as before within %s", r.Deadline)
	waits, outage := c.waitCondition()
	if waits != "" {
		why += ": " + waits
	}
	r.Outage, r.Pods = outage, c.blamedCauses()
	return r.rollBack(log, why)
}

// handleVerdict handles the child's verdict.
func (r *Role) handleVerdict(log *slog.Logger, c *child, said string) int {
	if why, bad := strings.CutPrefix(said, "bad: "); bad {
		c.endChild(endBad)
		r.Pods = c.blamedCauses()
		return r.rollBack(log, why)
	}
	c.endChild(endGood)
	log.Info("the trial has succeeded")
	if r.wasSignaled(log) {
		return 0
	}
	if r.Installed != "" {
		log.Error("the new program cannot be started; the previous one continues", "error", r.become(r.Installed, Role{}))
	}
	return r.rollBack(log, "")
}

// rollBack returns to the previous program or configuration after a trial. It replaces the guard with an agent, which
// runs the guard's own program. If the program on trial was already installed, the agent runs that program instead. If
// the guard cannot be replaced, rollBack returns an exit code.
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
