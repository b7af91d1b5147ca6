package configure

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// SkipReason returns why Load skipped the best configuration. It is nil if no configuration was skipped.
func (s *Start) SkipReason() error { return s.skipReason }

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

// checkConfiguration returns one error for each field that prevents the trial of the configuration c. It may change a
// protected field only if the parameter consent lists the field. The parameter now is the configuration in use, and pods is
// the number of pods on the node.
func (s *Start) checkConfiguration(c *trial.Configuration, consent []string, now *config.Config, pods int) error {
	next, err := s.loadConfiguration(c)
	if err != nil {
		return err
	}
	own, err := s.loadConfiguration(nil)
	if err != nil { // the node's own files may be valid only together with a sent configuration
		own = nil
	}
	errs := slices.Concat(config.CheckConsent(now, next, own, consent), config.CheckHeld(now, next, pods), next.CheckHost(os.DirFS("/")))
	if limit := int(next.Kubelet.MaxPods); limit < pods {
		errs = append(errs, fmt.Errorf("maxPods: Invalid value: %d: fewer than the %d pods of this node", limit, pods))
	}
	if c.Source.Bundle != "" && next.RuntimeEndpoint != now.RuntimeEndpoint {
		errs = append(errs, errRuntime)
	}
	return errors.Join(append(errs, checkClientCA(now, next))...)
}

// fieldsWithoutConsent returns the fields that the configuration in use has set without consent, because an older version of islet
// did not require consent for these fields. It reads the node's own files only if the configuration was accepted by such an older
// version.
func (s *Start) fieldsWithoutConsent(now *config.Config) []string {
	if s.usedConfiguration.IsLocal() || s.usedConfiguration.Program != nil || s.usedConfiguration.Binding >= config.Binding {
		return nil
	}
	own, err := s.loadConfiguration(nil)
	if err != nil { // the node's own files may be valid only together with a sent configuration
		return nil
	}
	names, err := config.UnconsentedPowers(own, now, s.usedConfiguration.Consent)
	if err != nil {
		return nil
	}
	return names
}

// endEarlierTrial ends the trial of an earlier process, if the record contains one. It reports whether the record has
// changed and must be stored. The caller has locked the directory.
func (s *Start) endEarlierTrial(c *Config, boot string) (changed bool) {
	if s.recordError != nil && trial.IsDamaged(s.recordError) {
		if err := trial.SetAside(c.Dirs.State); err != nil {
			c.Log.Error("cannot set aside the broken record of the node's configuration", "error", err)
		}
	}
	r := &s.record
	if s.OnTrial() {
		return false
	}
	changed = r.Trial != nil
	if changed {
		switch {
		case isInstalled(r.Assigned, c.Version): // the process was killed before the success was stored
			r.Accept(c.Now())
		case s.Role.Why != "" && len(s.Role.Pods) > 0:
			r.Veto(s.Role.Why, s.Role.Pods, c.Now())
		case s.Role.Why != "":
			r.FailTrial(s.Role.Why, s.Role.Outage, c.Now())
		case r.Trial.Boot != boot:
			r.FailTrial("the machine was shut down or restarted during the trial", true, c.Now())
		default:
			r.FailTrial("the agent was killed or stopped during the trial", true, c.Now())
		}
	}
	if r.HasProgram() && r.Assigned.Program.Left == "" { // a package manager may have installed this version meanwhile
		if newer, err := c.IsNewer(r.Assigned.Program.Version, c.Version); err == nil && !newer {
			r.CancelAssignment(fmt.Sprintf("the running islet %s is not older", c.Version), c.Now())
			changed = true
		}
	}
	return changed
}
