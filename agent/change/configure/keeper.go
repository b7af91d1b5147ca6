package configure

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/event"
)

// Restart is the error with which an agent ends when its process must continue in another role, such as a guard. The
// field Role is the new role.
type Restart struct{ Role guard.Role }

// Error returns the message for logs.
func (r *Restart) Error() string { return "the agent restarts" }

type clockFunc = func() time.Time

// Config is the input of Open.
type Config struct {
	*config.Config
	Start *Start
	Node  Node
	// Version is the version of this process. IsNewer reports whether version a is newer than version b.
	Version string
	IsNewer func(a, b string) (bool, error)
	Events  event.Sink
	// Changed is called when the result of Condition or Annotations has changed. It must not block. It may be nil.
	Changed func()
	// End ends the agent. Its argument is a *Restart.
	End func(error)
	Now clockFunc
	Log *slog.Logger
}

// A Keeper accepts configurations and runs their trials. Its methods may be called concurrently.
type Keeper struct {
	c          Config
	dir        string
	boot       string
	wakeSignal chan struct{} // capacity 1; receives when a configuration or program is assigned

	mu                sync.Mutex
	record            trial.Record
	fallbackReason    error  // why the good configuration is not in use
	recordError       error  // why the record of configurations could not be used
	waitCondition     string // the condition for which the trial waits
	isEnding          bool   // the agent is ending for a trial
	isUnsaved         bool   // the record of the start could not be stored
	followedSource    FollowedSource
	unconsentedFields []string // fields that need consent in this version, but were set without it in an older one

	confirmProgram func(ctx context.Context, id string) (due bool, err error) // may be nil: see ConfirmPrograms
	failedLooks    int                                                        // consecutive errors of confirmProgram; only Run uses it
}

// FollowedSource is the state of the source that the node follows.
type FollowedSource struct {
	Source  string // empty if the node follows no source
	Problem string // why the source cannot be followed; empty if it can
}

// Open returns the Keeper for the record that the Start has loaded. This process must have locked the state
// directory.
func Open(c Config) (*Keeper, error) {
	// Without a boot ID, a reboot cannot be distinguished from a restart of the agent.
	k := &Keeper{c: c, dir: c.Dirs.State, boot: bootid.Read(), wakeSignal: make(chan struct{}, 1)}
	dropped := c.Start.record.HasDropped(c.Now())
	changed := c.Start.endEarlierTrial(&c, k.boot)
	k.record, k.fallbackReason, k.recordError = c.Start.record, c.Start.skipReason, c.Start.recordError
	if changed || dropped {
		if err := trial.Save(k.dir, k.record); err != nil {
			k.isUnsaved = true
			c.Log.Error("cannot store the result of the trial", "error", err)
		}
	}
	if dropped {
		c.Log.Warn("the configuration of a bundle is not used, because the bundle has failed or was reverted", "used", k.record.Good.Name())
	}
	if err := c.KeepFiles(); err != nil {
		c.Log.Warn("a configuration file could not be copied; there is no replacement if it becomes unreadable", "error", err)
	}
	if k.unconsentedFields = c.Start.fieldsWithoutConsent(c.Config); len(k.unconsentedFields) > 0 {
		c.Log.Warn("the configuration sets privileged fields that need consent in this version",
			"configuration", k.record.Good.Name(), "fields", k.unconsentedFields)
	}
	k.reportTrial(changed)
	return k, nil
}

// Run waits until a configuration or program is assigned, and starts its trial. In a process on trial, it judges the
// trial. It returns when ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.c.Start.OnTrial() {
		k.runTrial(ctx)
		<-ctx.Done()
		return nil
	}
	if wait := k.retryDelay(); wait > 0 {
		restart := time.AfterFunc(wait, k.restartAgent)
		defer restart.Stop()
	}
	for {
		k.mu.Lock()
		pending := k.record.Assigned != nil
		k.mu.Unlock()
		var again <-chan time.Time
		if pending {
			if c := k.waitForHealth(ctx); c != nil {
				if k.isConfirmed(ctx, c) && k.beginTrial(ctx, c) {
					<-ctx.Done()
					return nil
				}
				k.c.Node.BundleTrials.ReleaseTrials()
				again = time.After(beginInterval)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wakeSignal:
		case <-again:
		}
	}
}

// SetFollowed sets the state of the source that the node follows.
func (k *Keeper) SetFollowed(f FollowedSource) {
	k.mu.Lock()
	same := k.followedSource == f
	k.followedSource = f
	k.mu.Unlock()
	if !same && k.c.Changed != nil {
		k.c.Changed()
	}
}
