package configure

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

// After these intervals the agent restarts, to check whether it can run with the good configuration again. The
// interval doubles each time, because the node's servers are unavailable during a restart.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// retryDelay returns the time until the next restart of this kind, or 0 if none is needed.
func (k *Keeper) retryDelay() time.Duration {
	if k.c.Start.Role.UnfitReason == "" {
		return 0
	}
	return min(firstRetry<<min(k.c.Start.Role.Fallbacks-1, 10), lastRetry)
}

// restartAgent restarts the agent to retry the good configuration, unless the agent is already ending.
func (k *Keeper) restartAgent() {
	k.restart("the agent restarts to check whether it can use the good configuration again")
}

// RestartAlone restarts the agent, because the last pods of the cluster, which the configuration no longer has, have been ended. An agent
// on trial is not restarted: it works as in an outage, without a hold, until its next start, which finds no pods of the cluster.
func (k *Keeper) RestartAlone() {
	if !k.c.Start.OnTrial() {
		k.restart("the agent restarts as a node without a cluster")
	}
}

func (k *Keeper) restart(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isEnding {
		return
	}
	k.isEnding = true
	k.c.Log.Info(why, "configuration", k.record.Good.Name())
	k.c.End(&Restart{guard.Role{Fallbacks: k.c.Start.Role.Fallbacks}})
}

// SkipReason returns why Load skipped the best configuration. It is nil if no configuration was skipped.
func (s *Start) SkipReason() error { return s.skipReason }

// useKeys makes the keys of the newest good configuration count in a process that uses another configuration. Otherwise keys that were
// removed would count again.
func (s *Start) useKeys(c *config.Config) {
	switch {
	case s.OnTrial():
	case s.recordError != nil:
		s.keysError = s.recordError
	case s.record.Good.IsLocal():
		s.brokenRecord = filepath.Join(c.Dirs.State, trial.BrokenFile)
	case s.skippedCount > 0:
		good, err := s.loadConfiguration(s.record.Good)
		if err != nil {
			s.keysError = err
			return
		}
		c.Edge.Bundle.Keys, c.Edge.Bundle.Threshold = good.Edge.Bundle.Keys, good.Edge.Bundle.Threshold
		to, from := &c.Edge.Update, &good.Edge.Update
		to.Keys, to.Threshold, to.IndexKeys = from.Keys, from.Threshold, from.IndexKeys
	}
}

// CheckKeys returns an error if the keys in the configuration of this process may have been removed by a configuration that the process
// cannot read. Then the node accepts nothing by itself. A person can still apply a bundle or an update.
func (s *Start) CheckKeys() error {
	err := s.keysError
	if _, absent := os.Lstat(s.brokenRecord); !errors.Is(absent, fs.ErrNotExist) {
		err = fmt.Errorf("the record of configurations was damaged: send a configuration, or remove %s", s.brokenRecord)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w: until then, use islet bundle apply and islet update", trial.ErrUnknownKeys, err)
}

// fallBack returns the role of the process that skips the current configuration, because this process cannot run with
// it on this host. That process uses the next configuration of record.Candidates(). The cause may be temporary, so the
// Keeper of that process restarts the agent later to retry the configuration. fallBack returns false if there is no
// other configuration.
func (s *Start) fallBack(why error) (next guard.Role, other bool) {
	if s.OnTrial() || s.skippedCount == len(s.record.Candidates())-1 {
		return next, false
	}
	if next = s.Role; next.UnfitReason == "" {
		next.Fallbacks++
	}
	if s.skipReason != nil {
		why = s.skipReason
	}
	next.Passed, next.UnfitReason = s.skippedCount+1, why.Error()
	return next, true
}

// HandleUnfit is called if this process cannot run with its configuration on this host. It returns the exit code. An
// operator may not be able to reach the node. So if the configuration is a good one that was sent to the node,
// HandleUnfit replaces this process with one that uses the previous good configuration. It does not replace the
// process in two cases. If the node's own files are in use, the operator has to correct them. If the configuration is
// on trial, the guard reverts it.
func (s *Start) HandleUnfit(err error, log *slog.Logger) int {
	s.Role.ReportResult(err.Error())
	log.Error("this host does not meet the requirements of the configuration; islet doctor reports more", "error", err)
	if next, other := s.fallBack(err); other {
		log.Error("cannot restart the agent", "error", s.Role.Become(next))
	}
	return 1
}
