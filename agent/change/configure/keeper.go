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

// Again is the error with which an agent ends to be restarted: its process gets Role.
type Again struct{ Role guard.Role }

// Error returns a message for logs.
func (a *Again) Error() string { return "the agent starts anew" }

type timeOf = func() time.Time

// Config is the input of Open.
type Config struct {
	*config.Config
	Start *Start
	Node  Node
	// Version is the version of this process. Newer reports whether version a is newer than b.
	Version string
	Newer   func(a, b string) (bool, error)
	Events  event.Sink
	// Changed is called when Condition or Annotations have changed. It must not block. It may be nil.
	Changed func()
	// End ends the agent, with an *Again.
	End func(error)
	Now timeOf
	Log *slog.Logger
}

// A Keeper accepts configurations and tries them. Its methods may be called concurrently.
type Keeper struct {
	c    Config
	dir  string
	boot string
	wake chan struct{} // capacity 1: something is assigned

	mu      sync.Mutex
	record  trial.Record
	fell    error  // why the good configuration is not in use
	broken  error  // why the record could not be used
	waiting string // for what the trial waits
	ending  bool   // the agent is ending for a trial
	follows Followed
	granted []string // privileged fields that the configuration has set since before they needed consent
}

// Followed is the state of the source that the node follows.
type Followed struct {
	Source  string // empty: none
	Problem string // why it cannot be followed; empty: it can
}

// Open returns the Keeper, with the record of the Start. This process must have locked the state
// directory.
func Open(c Config) (*Keeper, error) {
	// Without a boot ID every restart counts as one of the agent only.
	k := &Keeper{c: c, dir: c.Dirs.State, boot: bootid.Read(), wake: make(chan struct{}, 1)}
	changed := c.Start.settle(&c, k.boot)
	k.record, k.fell, k.broken = c.Start.record, c.Start.fell, c.Start.broken
	if changed {
		if err := trial.Save(k.dir, k.record); err != nil {
			c.Log.Error("cannot store the result of the trial", "error", err)
		}
	}
	if err := c.KeepFiles(); err != nil {
		c.Log.Warn("a configuration file that fails at the next start has no copy", "error", err)
	}
	if k.granted = c.Start.granted(c.Config); len(k.granted) > 0 {
		c.Log.Warn("the configuration that the node keeps has fields that give power over the node and that need its consent by now",
			"configuration", k.record.Good.Name(), "fields", k.granted)
	}
	k.tell(changed)
	return k, nil
}

// tell logs and records events about the result of the last trial, or that a trial is in progress.
func (k *Keeper) tell(ended bool) {
	c, r := k.c, &k.record
	after := c.Start.Role.After && c.Start.Role.Falls == 0 // else it comes after no trial
	last := trial.Outcome{}
	if n := len(r.History); n > 0 {
		last = r.History[n-1]
	}
	switch {
	case c.Start.OnTrial() && r.Tries():
		c.Events.Node(v1.EventTypeNormal, ReasonTryingProgram,
			fmt.Sprintf("islet %s of %s is tried", r.Assigned.Program.Version, r.Assigned.Source))
	case c.Start.OnTrial() && r.Assigned != nil:
		c.Events.Node(v1.EventTypeNormal, ReasonTrying,
			fmt.Sprintf("configuration %s of %s is tried", r.Assigned.Name(), r.Assigned.Source))
	case (ended || after) && r.Updated():
		c.Log.Info("another version of islet has stood its trial", "program", last.ID, "took", last.Took)
		c.Events.Node(v1.EventTypeNormal, ReasonUpdated, fmt.Sprintf("islet %s is installed and runs", c.Version))
	case ended:
		k.tellFailed(last)
	case after && last.ID != "" && last.Why == "":
		c.Log.Info("the configuration has stood its trial", "configuration", r.Good.Name())
		c.Events.Node(v1.EventTypeNormal, ReasonAccepted, fmt.Sprintf("configuration %s is the last known good one", r.Good.Name()))
	}
	for _, f := range c.FileFaults() {
		c.Log.Error("a configuration file cannot be read", "error", f)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed, "a configuration file cannot be read: "+f)
	}
	if k.broken != nil {
		c.Log.Error("what the node was sent is not known any more: its own files count", "error", k.broken)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			"what the node was sent is not known any more, its own files count: "+k.broken.Error())
	}
	if k.fell != nil {
		c.Log.Error("the configuration that the node keeps cannot be used", "configuration", r.Good.Name(), "used",
			k.active().Name(), "error", k.fell)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			fmt.Sprintf("configuration %s cannot be used, %s counts: %v", r.Good.Name(), k.active().Name(), k.fell))
	}
}

// tellFailed logs and records events about a trial that ended, but not with success.
func (k *Keeper) tellFailed(last trial.Outcome) {
	c, r := k.c, &k.record
	switch {
	case r.Assigned != nil:
		c.Log.Warn("a trial was interrupted; what was good goes on, and the trial begins anew", "tried", r.Assigned.Name(),
			"good", r.Good.Name(), "reason", last.Why)
	case last.Program && (r.FailedProgram == nil || r.FailedProgram.ID != last.ID):
		c.Log.Warn("another version of islet is not tried any more", "program", last.ID, "error", last.Why)
	case last.Program:
		c.Log.Error("another version of islet has failed its trial; the one before it goes on", "program", last.ID, "error",
			last.Why)
		c.Events.Node(v1.EventTypeWarning, ReasonFailedProgram,
			fmt.Sprintf("%s failed its trial, islet %s goes on: %s", last.ID, c.Version, last.Why))
	default:
		c.Log.Error("a configuration has failed its trial; the last known good one goes on", "configuration", last.ID,
			"good", r.Good.Name(), "error", last.Why)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			fmt.Sprintf("configuration %s failed its trial, %s goes on: %s", last.ID, r.Good.Name(), last.Why))
	}
}

// Reasons of events.
const (
	ReasonTrying   = "ConfigurationOnTrial"
	ReasonAccepted = "ConfigurationAccepted"
	ReasonFailed   = "ConfigurationFailed"
	ReasonRefused  = "ConfigurationRefused"

	ReasonTryingProgram = "IsletOnTrial"
	ReasonUpdated       = "IsletUpdated"
	ReasonFailedProgram = "IsletUpdateFailed"
)

// Run tries what is assigned, or judges the trial in this process, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.c.Start.OnTrial() {
		k.judge(ctx)
		<-ctx.Done()
		return nil
	}
	if wait := k.retry(); wait > 0 {
		again := time.AfterFunc(wait, k.again)
		defer again.Stop()
	}
	for {
		k.mu.Lock()
		pending := k.record.Assigned != nil
		k.mu.Unlock()
		if pending && k.ready(ctx) && k.begin(ctx) {
			<-ctx.Done()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
	}
}

// Intervals at which the agent restarts to check whether it can run on this host with the good
// configuration again. They grow, because the node does not answer for a moment at each restart.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// retry returns the time until the next such restart, or 0 for none.
func (k *Keeper) retry() time.Duration {
	if k.c.Start.Role.Unfit == "" {
		return 0
	}
	return min(firstRetry<<min(k.c.Start.Role.Falls-1, 10), lastRetry)
}

// again restarts the agent to try the good configuration, unless the agent is already ending.
func (k *Keeper) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ending {
		return
	}
	k.ending = true
	k.c.Log.Info("the agent starts anew to see whether it can use the configuration that the node keeps", "configuration",
		k.record.Good.Name())
	k.c.End(&Again{guard.Role{Falls: k.c.Start.Role.Falls}})
}

// Times of looking.
const (
	glance = time.Second
	// most is how long a trial waits for the node to become healthy before it begins: the
	// configuration may be what makes the node healthy.
	most = time.Minute
)

// ready waits until the node is healthy, for at most most. A configuration that came over the link
// also waits without a limit for the link. It returns false if ctx has ended.
func (k *Keeper) ready(ctx context.Context) bool {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	var waits *trial.Configuration
	began := time.Now()
	for {
		f := k.c.Node.facts(ctx)
		well := f.Node == "" && f.Link == "" && k.c.Node.Spoken()
		for _, ready := range f.Pods {
			well = well && ready
		}
		k.mu.Lock()
		now := k.record.Assigned
		k.mu.Unlock()
		if now == nil {
			return ctx.Err() == nil
		}
		if now != waits { // a person need not wait for the link that another one waits for
			waits, began = now, time.Now()
		}
		// Without the server nobody would see that what it sent loses it.
		if patient := time.Since(began) < most || remote(now) && f.Link != ""; well || !patient {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// remote reports whether a configuration came over the link and no operator at the node requested
// it.
func remote(c *trial.Configuration) bool {
	return !c.Asked && (c.Source.Name != "" || c.Program != nil)
}

// begin starts the trial of what is assigned. It stores the record first: from then on every
// failure leads back to the good configuration.
func (k *Keeper) begin(ctx context.Context) bool {
	facts := k.c.Node.facts(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.record
	if k.ending || !k.record.Begin(facts, k.boot, k.c.Now()) {
		return false
	}
	if err := k.save(before); err != nil {
		k.c.Log.Error("what is to be tried is not, as that cannot be stored", "error", err)
		return false
	}
	c := k.record.Assigned
	k.ending = true
	k.c.Log.Info("a trial begins: the agent starts anew, the pods go on running", "tried", c.Name(), "from",
		c.Source.String(), "attempt", k.record.Attempts)
	k.c.End(&Again{k.guard(c)})
	return true
}

// judge compares the node with its state before the trial until the trial is decided.
func (k *Keeper) judge(ctx context.Context) {
	k.mu.Lock()
	t := k.record.Trial
	k.mu.Unlock()
	if t == nil {
		k.c.Start.Role.Report("nothing is on trial")
		return
	}
	j := k.record.Judge(k.healthyFor(), !k.record.Tries() && !k.c.Start.samePressure(k.c.Config))
	var blamed []string
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		facts := k.c.Node.facts(ctx)
		v, why := j.Look(time.Now(), facts)
		if blame := j.Blame(facts); v != trial.Good && !slices.Equal(blame, blamed) {
			k.c.Start.Role.Blame(blame)
			blamed = blame
		}
		k.mu.Lock()
		if why != k.waiting && v == trial.Waiting {
			k.c.Start.Role.Waits(why, j.Outage(facts))
		}
		k.waiting = why
		k.mu.Unlock()
		switch v {
		case trial.Good:
			k.c.Start.Role.Report(k.accept())
			return
		case trial.Bad:
			k.c.Start.Role.Report(why)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// healthyFor returns the setting of the node's own files: the configuration on trial cannot change
// how it is tried, unless it has the consent for that.
func (k *Keeper) healthyFor() time.Duration {
	d := k.c.Edge.Configuration.HealthyFor.Duration
	if k.record.Tries() {
		d = min(d, programHealthy)
	}
	return d
}

// accept stores that the configuration or program on trial is good, or returns why it cannot. A
// program that has been installed is good: if that cannot be stored now, such as on a full disk,
// the next agent detects and stores it.
func (k *Keeper) accept() (why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, program := k.record, k.record.Tries()
	err := k.install(k.record.Assigned)
	if err == nil {
		k.record.Accept(k.c.Now())
		if err = k.save(before); err != nil && program {
			k.c.Log.Error("that another version of islet is installed is not stored yet", "error", err)
			err = nil
		}
	}
	k.ending = err == nil // the agent that comes next takes what comes next
	if err != nil {
		return err.Error()
	}
	return ""
}

// SetFollowed sets the state of the source that the node follows.
func (k *Keeper) SetFollowed(f Followed) {
	k.mu.Lock()
	same := k.follows == f
	k.follows = f
	k.mu.Unlock()
	if !same && k.c.Changed != nil {
		k.c.Changed()
	}
}
