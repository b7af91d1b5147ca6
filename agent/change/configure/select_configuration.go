package configure

import (
	"errors"
	"slices"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

// A Start selects the configuration for a process: one that was sent to the node, or the node's own files.
type Start struct {
	Role  guard.Role
	Began time.Time // when Begin was called

	RemoveOnly bool // the process only removes pods: see BeginCleanup

	args              []string
	record            trial.Record
	recordError       error                // why the record cannot be used
	usedConfiguration *trial.Configuration // the selected configuration; it points into record
	skippedCount      int                  // the index of usedConfiguration in record.Candidates(); the number of skipped ones
	skipReason        error                // why the first configuration was skipped
	keysError         error                // see CheckKeys
	brokenRecord      string               // while this file exists, CheckKeys returns an error; may be ""
}

// Begin returns a Start for an agent with the command-line arguments args. It does no I/O.
func Begin(role guard.Role, args []string) *Start {
	return &Start{Role: role, Began: time.Now(), args: args}
}

// BeginCleanup returns a Start for a process that removes the pods of an agent that is not running.
func BeginCleanup(args []string) *Start {
	s := Begin(guard.Role{}, args)
	s.RemoveOnly = true
	return s
}

// Load loads the configuration like config.Load, but prefers a configuration that was sent to the node: the one on
// trial, or the good one. If the good one has become invalid, for example because the node's own files have changed,
// Load uses the previous good one, or else the node's own files. The Keeper then reports why.
func Load(args []string) (*config.Config, []config.Notice, error) {
	return Begin(guard.Role{}, args).Load()
}

// Load tries the configurations in the order of record.Candidates(): the newest good one first, the node's own files
// last. For each configuration it loads the record again, so that s.usedConfiguration always points into the current
// record. The first Role.Passed configurations are skipped, because an earlier process could not run with them. A
// process on trial only tries the configuration on trial.
func (s *Start) Load() (*config.Config, []config.Notice, error) {
	s.skippedCount = s.Role.Passed
	if s.Role.UnfitReason != "" {
		s.skipReason = errors.New(s.Role.UnfitReason)
	}
	for errs := []error(nil); ; s.skippedCount++ {
		last := true // stays true if the directory of the record cannot be determined
		c, notices, err := config.LoadWith(s.args, func(d config.Dirs) (*config.SentConfiguration, error) {
			s.record, s.recordError = trial.Load(d.State)
			s.usedConfiguration, last = s.record.Select(true), true
			if !s.OnTrial() {
				kept := s.record.Candidates()
				s.skippedCount = min(s.skippedCount, len(kept)-1)
				s.usedConfiguration, last = kept[s.skippedCount], s.skippedCount == len(kept)-1
			}
			return s.useConfiguration(s.usedConfiguration), nil
		})
		if err == nil {
			s.useKeys(c)
		}
		if asked := (*config.InfoRequest)(nil); err == nil || errors.As(err, &asked) {
			return c, notices, err
		}
		errs = slices.Insert(errs, 0, err)
		if last {
			return nil, nil, errors.Join(errs...)
		}
		if s.skipReason == nil {
			s.skipReason = err
		}
	}
}

func (s *Start) useConfiguration(c *trial.Configuration) *config.SentConfiguration {
	if c == nil || c.Kubelet == "" && c.Edge == "" {
		return nil
	}
	return &config.SentConfiguration{
		Name: c.Source.String(), Kubelet: []byte(c.Kubelet), Edge: []byte(c.Edge), Consent: c.Consent, Binding: c.Binding,
	}
}

// OnTrial reports whether this process is the agent on trial, with another configuration or version.
func (s *Start) OnTrial() bool { return s.Role.Kind == guard.Trial }

// HoldsPods reports whether this process is on trial and the change on trial does not affect which pods are desired. In
// that case a pod that its source no longer lists must not be ended. The change itself may be the cause, for example
// if the new version does not find a manifest.
func (s *Start) HoldsPods(now *config.Config) bool {
	if !s.OnTrial() || s.record.HasProgram() {
		return s.OnTrial()
	}
	good, err := s.loadConfiguration(s.record.Good)
	return err != nil || config.SameManifests(good, now)
}

// samePressure reports whether a configuration on trial has the same eviction thresholds as the good one. If it does,
// a pressure that arises during the trial is caused by pods, not by the configuration.
func (s *Start) samePressure(now *config.Config) bool {
	good, err := s.loadConfiguration(s.record.Good)
	return err == nil && config.SamePressure(good, now)
}

// loadConfiguration loads a configuration in the same way as the next start of the agent.
func (s *Start) loadConfiguration(c *trial.Configuration) (*config.Config, error) {
	next, _, err := config.LoadWith(s.args, func(config.Dirs) (*config.SentConfiguration, error) { return s.useConfiguration(c), nil })
	return next, err
}
