package configure

import (
	"fmt"
	"strings"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
)

// Show returns the configurations that were sent to the node, the configuration in use, and the results of trials.
func (k *Keeper) Show() api.Configuration {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.record
	out := api.Configuration{
		Active: configurationRef(k.activeConfiguration()), Good: configurationRef(r.Good), Before: configurationRef(r.Before),
		Attempts: r.Attempts,
		Follows:  k.followedSource.Source, FollowProblem: k.followedSource.Problem, Waiting: k.waitCondition, Problem: k.unusedReason(),
		Overridden: k.followedSource.Source != "" && k.isOverridden(), Files: k.c.Files(),
	}
	if r.Assigned != nil {
		out.Assigned = new(configurationRef(r.Assigned))
	}
	if r.Trial != nil {
		out.Trying = true
	}
	if k.isEnding {
		out.Trying = true
	}
	if f := r.Failed; f != nil {
		out.Failed = &api.ConfigurationFailure{ID: f.ID, Why: f.Why, At: f.At}
	}
	if f := r.FailedProgram; f != nil {
		out.FailedUpdate = &api.ConfigurationFailure{ID: f.ID, Why: f.Why, At: f.At}
	}
	for _, o := range r.History {
		out.History = append(out.History, api.ConfigurationTrial{ID: o.ID, From: o.From, At: o.At, Seconds: o.Took,
			Why: o.Why, Interrupted: o.Undecided, Withdrawn: o.Withdrawn, Untried: string(o.Untried)})
	}
	return out
}

// configurationRef is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func configurationRef(c *trial.Configuration) api.ConfigurationRef {
	if c.IsLocal() {
		return api.ConfigurationRef{ID: "local", From: trial.Local}
	}
	return api.ConfigurationRef{ID: c.ID, From: c.Source.String(), At: c.At, Kubelet: c.Kubelet, Edge: c.Edge, Consent: c.Consent}
}

// activeConfiguration returns the configuration that this process uses. A program on trial uses the good configuration.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (k *Keeper) activeConfiguration() *trial.Configuration {
	switch c := k.record.Select(k.c.Start.OnTrial()); {
	case k.fallbackReason != nil:
		return k.c.Start.usedConfiguration
	case c == nil || c.Program == nil:
		return c
	case c.Kubelet == "" && c.Edge == "":
		return nil
	}
	return k.record.Good
}

// Received returns the ID and the source of the configuration in use. It returns "" if only the node's own files are in use.
func (k *Keeper) Received() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.activeConfiguration()
	if c.IsLocal() {
		return ""
	}
	return c.ID + " from " + c.Source.String()
}

// isOverridden reports whether an operator has requested another configuration than the followed source offers.
func (k *Keeper) isOverridden() bool {
	r, wanted := &k.record, k.assignedConfiguration()
	failed := r.Failed != nil && r.Failed.ID == r.Followed
	return r.Followed != "" && r.Followed != wanted.Reference() && !failed && (wanted == nil || wanted.Asked)
}

// unusedReason returns why the node does not use the last configuration that was sent to it. It returns "" if the node
// uses that configuration or will try it.
func (k *Keeper) unusedReason() string {
	switch r, unknown := &k.record, k.c.Start.CheckKeys(); {
	case unknown != nil:
		return unknown.Error()
	case k.recordError != nil:
		return "the record of configurations cannot be used: " + k.recordError.Error()
	case k.fallbackReason != nil:
		return fmt.Sprintf("configuration %s cannot be used: %v", r.Good.Name(), k.fallbackReason)
	case r.Failed != nil:
		return fmt.Sprintf("configuration %s failed: %s", r.Failed.ID, r.Failed.Why)
	}
	return ""
}

// Problems returns the problems that islet status shows.
func (k *Keeper) Problems() (out []string) {
	for _, name := range k.c.EditedFiles() {
		out = append(out, name+" has changed since islet started: restart islet to use it")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.unusedReason(); p != "" {
		out = append(out, p+" (islet config)")
	}
	for _, f := range k.c.FileFaults() {
		out = append(out, "a configuration file cannot be read: "+f)
	}
	if len(k.unconsentedFields) > 0 {
		out = append(out, fmt.Sprintf("configuration %s changes %s, which needs consent in this version: "+
			"run islet config revert, or islet config apply --consent", k.activeConfiguration().Name(),
			strings.Join(k.unconsentedFields, ", ")))
	}
	if f := k.record.FailedProgram; f != nil {
		out = append(out, fmt.Sprintf("%s has failed, islet %s keeps running: %s (islet config history)", f.ID, k.c.Version, f.Why))
	}
	if k.followedSource.Problem != "" {
		out = append(out, "the configuration of "+k.followedSource.Source+" cannot be followed: "+k.followedSource.Problem)
	}
	return out
}

const maxMessage = 1 << 10

// assignedConfiguration returns the configuration that waits for its trial or is on trial, or the good one if there is none.
func (k *Keeper) assignedConfiguration() *trial.Configuration {
	if k.record.Assigned != nil && !k.record.HasProgram() {
		return k.record.Assigned
	}
	return k.record.Good
}

// Keys of a ConfigMap. kubeadm also uses KubeletKey for the KubeletConfiguration.
const (
	KubeletKey = "kubelet"
	EdgeKey    = "edge"
)
