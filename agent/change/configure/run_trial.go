package configure

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
)

const (
	// factsInterval is the interval at which the node's facts are read.
	factsInterval = time.Second
	// maxHealthWait is the maximum time for which an assigned configuration waits until the node is healthy.
	// Then its trial begins anyway, because the configuration may repair the node.
	maxHealthWait = time.Minute
	// beginInterval is the delay before a trial that could not begin is attempted again. By then, a full disk may have free space. If the
	// attempt were not repeated, a bundle that waits for the trial of its configuration would stay on trial forever.
	beginInterval = time.Minute
)

// waitForHealth waits until the node is healthy, for at most maxHealthWait. For a configuration or program from a followed source
// (isFromFollowedSource), it also waits until the link is up, without a limit. If a bundle is on trial, it waits until that trial has
// ended. It returns the assigned configuration or program after it has called HoldTrials. It returns nil if ctx has ended, or if nothing is
// assigned any longer.
func (k *Keeper) waitForHealth(ctx context.Context) *trial.Configuration {
	tick := time.NewTicker(factsInterval)
	defer tick.Stop()
	var waitingFor *trial.Configuration
	began := time.Now()
	for {
		f := k.c.Node.collectFacts(ctx)
		healthy := f.Node == "" && f.Link == "" && k.c.Node.SourcesReported()
		for _, ready := range f.Pods {
			healthy = healthy && ready
		}
		k.mu.Lock()
		assigned := k.record.Assigned
		k.mu.Unlock()
		if assigned == nil {
			return nil
		}
		if assigned != waitingFor { // another configuration was assigned, so the wait starts again
			waitingFor, began = assigned, time.Now()
		}
		// Without a link, the trial could not detect a configuration that breaks the link.
		keepWaiting := time.Since(began) < maxHealthWait || isFromFollowedSource(assigned) && f.Link != ""
		if (healthy || !keepWaiting) && ctx.Err() == nil && k.c.Node.BundleTrials.HoldTrials(assigned.ID) {
			return assigned
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// isFromFollowedSource reports whether a configuration or program came from a followed source: a ConfigMap or an index. It returns false
// for a request of an operator, and for a bundle, even if the bundle was downloaded.
func isFromFollowedSource(c *trial.Configuration) bool {
	return !c.Asked && (c.Source.Name != "" || c.Program != nil && !c.Program.Bundled)
}

// beginTrial stores the record, so that any later failure leads back to the good configuration. It then starts the trial
// of the assigned configuration or program. It returns false if the trial was not started, for example because another configuration has
// been assigned instead of c.
func (k *Keeper) beginTrial(ctx context.Context, c *trial.Configuration) bool {
	facts := k.c.Node.collectFacts(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.record
	if k.isEnding || k.record.Assigned != c || !k.record.Begin(facts, k.boot, k.c.Now()) {
		return false
	}
	if err := k.saveRecord(before); err != nil {
		k.c.Log.Error("a trial could not begin, because the record could not be written", "error", err)
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
		d = min(d, trial.ProgramHealthy)
	}
	return d
}

// acceptTrial records the configuration or program on trial as good. It returns "" or the reason for a failure. The trial of a program
// fails here only if the program cannot be installed. If the success of the trial cannot be stored, for example because the disk is full,
// the next agent detects and stores it.
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
		if err == nil && !program { // it says which keys count: see CheckKeys
			_ = os.Remove(filepath.Join(k.dir, trial.BrokenFile))
		}
	}
	k.isEnding = err == nil // the next agent handles later offers
	if err != nil {
		return err.Error()
	}
	return ""
}
