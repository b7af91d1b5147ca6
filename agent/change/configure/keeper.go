package configure

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

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

// reportTrial logs the result of the last trial, or that a trial is in progress, and records events about it. The
// parameter ended is true if this process has ended that trial.
func (k *Keeper) reportTrial(ended bool) {
	c, r := k.c, &k.record
	after := c.Start.Role.After && c.Start.Role.Fallbacks == 0 // this process follows a trial
	last := trial.Outcome{}
	if n := len(r.History); n > 0 {
		last = r.History[n-1]
	}
	switch {
	case c.Start.OnTrial() && r.HasProgram():
		c.Events.Node(v1.EventTypeNormal, ReasonTryingProgram,
			fmt.Sprintf("islet %s from %s is on trial", r.Assigned.Program.Version, r.Assigned.Source))
	case c.Start.OnTrial() && r.Assigned != nil:
		c.Events.Node(v1.EventTypeNormal, ReasonTrying,
			fmt.Sprintf("configuration %s from %s is on trial", r.Assigned.Name(), r.Assigned.Source))
	case (ended || after) && r.Updated():
		c.Log.Info("another version of islet has passed its trial", "program", last.ID, "took", last.Took)
		c.Events.Node(v1.EventTypeNormal, ReasonUpdated, fmt.Sprintf("islet %s is installed and runs", c.Version))
	case ended:
		k.reportFailure(last)
	case after && last.ID != "" && last.Why == "":
		c.Log.Info("the configuration has passed its trial", "configuration", r.Good.Name())
		c.Events.Node(v1.EventTypeNormal, ReasonAccepted, fmt.Sprintf("configuration %s is the last known good one", r.Good.Name()))
	}
	for _, f := range c.FileFaults() {
		c.Log.Error("a configuration file cannot be read", "error", f)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed, "a configuration file cannot be read: "+f)
	}
	if k.recordError != nil {
		c.Log.Error("the record of configurations cannot be used; the node uses its own files", "error", k.recordError)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			"the record of configurations cannot be used, the node uses its own files: "+k.recordError.Error())
	}
	if k.fallbackReason != nil {
		c.Log.Error("the last known good configuration cannot be used", "configuration", r.Good.Name(), "used",
			k.activeConfiguration().Name(), "error", k.fallbackReason)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			fmt.Sprintf("configuration %s cannot be used, the node uses %s: %v", r.Good.Name(), k.activeConfiguration().Name(),
				k.fallbackReason))
	}
}

// reportFailure logs the outcome of a trial that ended without success, and records events about it.
func (k *Keeper) reportFailure(last trial.Outcome) {
	c, r := k.c, &k.record
	switch {
	case r.Assigned != nil:
		c.Log.Warn("a trial was interrupted; it is repeated later", "tried", r.Assigned.Name(),
			"good", r.Good.Name(), "reason", last.Why)
	case last.Program && (r.FailedProgram == nil || r.FailedProgram.ID != last.ID):
		c.Log.Warn("the trial of another version of islet was cancelled", "program", last.ID, "error", last.Why)
	case last.Program:
		c.Log.Error("another version of islet has failed its trial; the previous version keeps running", "program", last.ID, "error",
			last.Why)
		c.Events.Node(v1.EventTypeWarning, ReasonFailedProgram,
			fmt.Sprintf("%s failed its trial, islet %s keeps running: %s", last.ID, c.Version, last.Why))
	default:
		c.Log.Error("a configuration has failed its trial; the node uses the last known good one", "configuration", last.ID,
			"good", r.Good.Name(), "error", last.Why)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			fmt.Sprintf("configuration %s failed its trial, the node uses %s: %s", last.ID, r.Good.Name(), last.Why))
	}
}

// Reasons of the events.
const (
	ReasonTrying   = "ConfigurationOnTrial"
	ReasonAccepted = "ConfigurationAccepted"
	ReasonFailed   = "ConfigurationFailed"
	ReasonRefused  = "ConfigurationRefused"

	ReasonTryingProgram = "IsletOnTrial"
	ReasonUpdated       = "IsletUpdated"
	ReasonFailedProgram = "IsletUpdateFailed"
)

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
				if k.beginTrial(ctx, c) {
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isEnding {
		return
	}
	k.isEnding = true
	k.c.Log.Info("the agent restarts to check whether it can use the good configuration again", "configuration",
		k.record.Good.Name())
	k.c.End(&Restart{guard.Role{Fallbacks: k.c.Start.Role.Fallbacks}})
}

const (
	// factsInterval is the interval at which the node's facts are read.
	factsInterval = time.Second
	// maxHealthWait is the maximum time for which an assigned configuration waits until the node is healthy.
	// Then its trial begins anyway, because the configuration may repair the node.
	maxHealthWait = time.Minute
	// beginInterval is the time after which a trial that could not begin is attempted again. A full disk may have space then. Without
	// this attempt, the trial of a bundle whose configuration waits would never end.
	beginInterval = time.Minute
)

// waitForHealth waits until the node is healthy, for at most maxHealthWait. For a configuration that came over the link, it
// also waits until the link is up, without a limit. It also waits until the trial of a bundle has ended, which has a deadline of its own.
// It returns the assigned configuration or program, and then holds the trials of bundles for it. It returns nil if ctx has ended, or if
// nothing is assigned any longer.
func (k *Keeper) waitForHealth(ctx context.Context) *trial.Configuration {
	tick := time.NewTicker(factsInterval)
	defer tick.Stop()
	var waits *trial.Configuration
	began := time.Now()
	for {
		f := k.c.Node.collectFacts(ctx)
		well := f.Node == "" && f.Link == "" && k.c.Node.SourcesReported()
		for _, ready := range f.Pods {
			well = well && ready
		}
		k.mu.Lock()
		now := k.record.Assigned
		k.mu.Unlock()
		if now == nil {
			return nil
		}
		if now != waits { // another configuration was assigned, so the wait starts again
			waits, began = now, time.Now()
		}
		// Without a link, the trial could not detect a configuration that breaks the link.
		patient := time.Since(began) < maxHealthWait || isRemote(now) && f.Link != ""
		if (well || !patient) && ctx.Err() == nil && k.c.Node.BundleTrials.HoldTrials(now.ID) {
			return now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// isRemote reports whether a configuration or program came over the link. The others come from an operator at the node, or from a bundle,
// which may be on a stick.
func isRemote(c *trial.Configuration) bool {
	return !c.Asked && (c.Source.Name != "" || c.Program != nil && !c.Program.Bundled)
}

// beginTrial stores the record, so that any later failure leads back to the good configuration. It then starts the trial
// of the assigned configuration or program. It returns false if the trial was not started, for example because another one than c is
// assigned now.
func (k *Keeper) beginTrial(ctx context.Context, c *trial.Configuration) bool {
	facts := k.c.Node.collectFacts(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.record
	if k.isEnding || k.record.Assigned != c || !k.record.Begin(facts, k.boot, k.c.Now()) {
		return false
	}
	if err := k.saveRecord(before); err != nil {
		k.c.Log.Error("a trial cannot begin, because its record cannot be stored", "error", err)
		return false
	}
	k.isEnding = true
	k.c.Log.Info("a trial begins: the agent restarts, the pods keep running", "tried", c.Name(), "from",
		c.Source.String(), "attempt", k.record.Attempts)
	k.c.End(&Restart{k.guardRole(c)})
	return true
}

// runTrial compares the node with its state before the trial, until the trial has a result.
func (k *Keeper) runTrial(ctx context.Context) {
	k.mu.Lock()
	t := k.record.Trial
	k.mu.Unlock()
	if t == nil {
		k.c.Start.Role.ReportResult("nothing is on trial")
		return
	}
	j := k.record.Judge(k.healthyFor(), !k.record.HasProgram() && !k.c.Start.samePressure(k.c.Config))
	var blamed []string
	tick := time.NewTicker(factsInterval)
	defer tick.Stop()
	for {
		facts := k.c.Node.collectFacts(ctx)
		v, why := j.Evaluate(time.Now(), facts)
		if blame := j.BlockingCauses(facts); v != trial.Good && !slices.Equal(blame, blamed) {
			k.c.Start.Role.ReportBlamed(blame)
			blamed = blame
		}
		k.mu.Lock()
		if why != k.waitCondition && v == trial.Waiting {
			k.c.Start.Role.ReportWait(why, j.Outage(facts))
		}
		k.waitCondition = why
		k.mu.Unlock()
		switch v {
		case trial.Good:
			k.c.Start.Role.ReportResult(k.acceptTrial())
			return
		case trial.Bad:
			k.c.Start.Role.ReportResult(why)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// healthyFor returns how long the node must be healthy for the trial to succeed. The duration is a protected field, so
// a configuration on trial cannot change it without consent.
func (k *Keeper) healthyFor() time.Duration {
	d := k.c.Edge.Configuration.HealthyFor.Duration
	if k.record.HasProgram() {
		d = min(d, programHealthy)
	}
	return d
}

// acceptTrial records the configuration or program on trial as good. It returns the reason if that fails. The trial of a
// program fails here only if the program cannot be installed. If the success of the trial cannot be stored, for example
// because the disk is full, the next agent detects and stores it.
func (k *Keeper) acceptTrial() (why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, program := k.record, k.record.HasProgram()
	err := k.installProgram(k.record.Assigned)
	if err == nil {
		k.record.Accept(k.c.Now())
		if err = k.saveRecord(before); err != nil && program {
			k.c.Log.Error("the success of an update could not be stored yet", "error", err)
			err = nil
		}
	}
	k.isEnding = err == nil // the next agent handles later offers
	if err != nil {
		return err.Error()
	}
	return ""
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
