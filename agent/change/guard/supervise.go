package guard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// Times to wait for a child after SIGTERM.
const (
	endGood    = 20 * time.Second
	endBad     = 5 * time.Second
	endStopped = 12 * time.Second // shorter than a service manager's timeout, longer than an agent needs
)

// Supervise is the main function of a guard. It starts an agent on trial, and replaces itself with an agent after the
// trial. It returns an exit code if it received a signal or has failed. The service manager then starts an agent.
func (r *Role) Supervise(log *slog.Logger) int {
	runtime.LockOSThread() // main has locked it already
	r.signals = make(chan os.Signal, 4)
	signal.Notify(r.signals, syscall.SIGTERM, os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reapInherited(ctx)
	c, err := startChild(cmp.Or(r.Program, ownProgram))
	if err != nil {
		return r.rollBack(log, fmt.Sprintf("the agent on trial could not be started: %v", err))
	}
	log.Info("an agent is on trial", "pid", c.cmd.Process.Pid, "deadline", r.Deadline, "program", r.Program)
	late := time.NewTimer(r.Deadline)
	defer late.Stop()
	select {
	case s := <-r.signals:
		log.Info("the guard ends the agent on trial because of a signal", "signal", s)
		c.endChild(endStopped)
		return max(0, c.cmd.ProcessState.ExitCode())
	case said, ok := <-c.verdict:
		if !ok {
			return r.rollBack(log, fmt.Sprintf("the agent ended: %v; its log says more", c.cmd.ProcessState))
		}
		return r.handleVerdict(log, c, said)
	case <-late.C:
		c.endChild(endBad)
		if said, ok := <-c.verdict; ok { // a report that was sent just before the end
			return r.handleVerdict(log, c, said)
		}
		return r.handleDeadline(log, c)
	}
}

// wasSignaled reports whether the guard received a signal while it was ending the child.
func (r *Role) wasSignaled(log *slog.Logger) bool {
	select {
	case s := <-r.signals:
		log.Info("the guard ends because of a signal", "signal", s)
		return true
	default:
		return false
	}
}
