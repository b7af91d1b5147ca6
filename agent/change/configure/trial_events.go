package configure

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/trial"
)

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

// reportTrial logs and records events about the last trial, or about the trial in progress. The parameter ended is true if this process has
// ended that trial.
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
		c.Log.Error("the stored record of configurations cannot be used; the node uses its own configuration files", "error", k.recordError)
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
		k.reportFailedProgram(last)
	default:
		c.Log.Error("a configuration has failed its trial; the node uses the last known good one", "configuration", last.ID,
			"good", r.Good.Name(), "error", last.Why)
		c.Events.Node(v1.EventTypeWarning, ReasonFailed,
			fmt.Sprintf("configuration %s failed its trial, the node uses %s: %s", last.ID, r.Good.Name(), last.Why))
	}
}

// reportFailedProgram records the event of a program that failed its self-test or its trial.
func (k *Keeper) reportFailedProgram(o trial.Outcome) {
	k.c.Events.Node(v1.EventTypeWarning, ReasonFailedProgram,
		fmt.Sprintf("%s has failed, islet %s keeps running: %s", o.ID, k.c.Version, o.Why))
}
