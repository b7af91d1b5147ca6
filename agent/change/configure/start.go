package configure

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

// A Start selects the configuration with which a process runs, among those that were sent to the
// node and its own files.
type Start struct {
	Role guard.Role

	args   []string
	record trial.Record
	broken error                // why the record cannot be used
	used   *trial.Configuration // the selected configuration; it points into record
	passed int                  // the index of used in record.Kept(): how many better ones were skipped
	fell   error                // why the best one was skipped
}

// Begin returns a Start. It does no I/O. args is the agent's command line.
func Begin(role guard.Role, args []string) *Start { return &Start{Role: role, args: args} }

// Load loads the configuration like config.Load, but uses the one that was sent to the node and
// is kept or on trial. A kept configuration that has become invalid, such as after a change of
// the node's own files, is skipped: the previous good one is used, or the node's own files, and
// the Keeper reports why.
func Load(args []string) (*config.Config, []config.Notice, error) {
	return Begin(guard.Role{}, args).Load()
}

// Load is the package's Load for this Start. The order of record.Kept() is the order of the
// attempts: the newest good configuration first, the node's own files last. Each attempt loads
// the record again, so that used always points into the current record. The attempts start at
// Role.Passed, the configurations that an earlier process could not run with. On trial there is
// one attempt, with the configuration on trial.
func (s *Start) Load() (*config.Config, []config.Notice, error) {
	s.passed = s.Role.Passed
	if s.Role.Unfit != "" {
		s.fell = errors.New(s.Role.Unfit)
	}
	for errs := []error(nil); ; s.passed++ {
		last := true // also if the directory of the record cannot be determined
		c, notices, err := config.LoadWith(s.args, func(d config.Dirs) (*config.Sent, error) {
			s.record, s.broken = trial.Load(d.State)
			s.used, last = s.record.Use(true), true
			if !s.OnTrial() {
				kept := s.record.Kept()
				s.passed = min(s.passed, len(kept)-1)
				s.used, last = kept[s.passed], s.passed == len(kept)-1
			}
			return s.use(s.used), nil
		})
		if asked := (*config.Asked)(nil); err == nil || errors.As(err, &asked) {
			return c, notices, err
		}
		errs = slices.Insert(errs, 0, err)
		if last {
			return nil, nil, errors.Join(errs...)
		}
		if s.fell == nil {
			s.fell = err
		}
	}
}

// Instead returns the role of a process that runs with the next good configuration, or the node's
// own files, because this process cannot run on this host with the current one. The cause may be
// temporary: the Keeper restarts the agent to try again. It returns false if there is no other
// configuration.
func (s *Start) Instead(why error) (next guard.Role, other bool) {
	if s.OnTrial() || s.passed == len(s.record.Kept())-1 {
		return next, false
	}
	if next = s.Role; next.Unfit == "" {
		next.Falls++
	}
	if s.fell != nil {
		why = s.fell
	}
	next.Passed, next.Unfit = s.passed+1, why.Error()
	return next, true
}

// Unfit ends a process that cannot run on this host with its configuration, and returns the exit
// code. If the configuration was sent to the node and kept, the process is replaced by one with
// the previous good configuration, since the node may be out of reach. Errors in the node's own
// files are for the operator to correct, and a trial is for the guard to revert.
func (s *Start) Unfit(err error, log *slog.Logger) int {
	s.Role.Report(err.Error())
	log.Error("this host does not meet the requirements of the configuration; islet doctor reports more", "error", err)
	if next, other := s.Instead(err); other {
		log.Error("cannot start the agent again", "error", s.Role.Become(next))
	}
	return 1
}

func (s *Start) use(c *trial.Configuration) *config.Sent {
	if c == nil || c.Kubelet == "" && c.Edge == "" {
		return nil
	}
	return &config.Sent{
		Name: c.Source.String(), Kubelet: []byte(c.Kubelet), Edge: []byte(c.Edge), Consent: c.Consent, Binding: c.Binding,
	}
}

// OnTrial reports whether this process tries a configuration or version.
func (s *Start) OnTrial() bool { return s.Role.Kind == guard.Trial }

// Holds reports whether this process tries a change that does not affect which pods are desired.
// Then no pod ends because its source no longer lists it, such as a manifest that another version
// does not find.
func (s *Start) Holds(now *config.Config) bool {
	if !s.OnTrial() || s.record.Tries() {
		return s.OnTrial()
	}
	good, err := s.load(s.record.Good)
	return err != nil || config.SameManifests(good, now)
}

// samePressure reports whether the configuration on trial has the same pressure thresholds as the
// good one: then a pressure during the trial is caused by pods, not by the configuration.
func (s *Start) samePressure(now *config.Config) bool {
	good, err := s.load(s.record.Good)
	return err == nil && config.SamePressure(good, now)
}

// load loads a configuration as the next start would.
func (s *Start) load(c *trial.Configuration) (*config.Config, error) {
	next, _, err := config.LoadWith(s.args, func(config.Dirs) (*config.Sent, error) { return s.use(c), nil })
	return next, err
}

// check returns errors, by field, if a configuration cannot be tried on a node that runs with now
// and has that many pods. consent names protected fields that it may change.
func (s *Start) check(c *trial.Configuration, consent []string, now *config.Config, pods int) error {
	next, err := s.load(c)
	if err != nil {
		return err
	}
	own, err := s.load(nil)
	if err != nil { // the node's own files are valid only together with a sent configuration
		own = nil
	}
	errs := slices.Concat(config.Withheld(now, next, own, consent), config.Held(now, next, pods), next.CheckHost(os.DirFS("/")))
	if most := int(next.Kubelet.MaxPods); most < pods {
		errs = append(errs, fmt.Errorf("maxPods: Invalid value: %d: fewer than the %d pods of this node", most, pods))
	}
	return errors.Join(append(errs, authorities(now, next))...)
}

// granted returns the privileged fields of the kept configuration that it has set since before
// they needed consent. The node's own files are read only if the kept configuration is that old.
func (s *Start) granted(now *config.Config) []string {
	if s.used.IsLocal() || s.used.Program != nil || s.used.Binding >= config.Binding {
		return nil
	}
	own, err := s.load(nil)
	if err != nil { // the node's own files are valid only together with a sent configuration
		return nil
	}
	names, err := config.Granted(own, now, s.used.Consent)
	if err != nil {
		return nil
	}
	return names
}

// settle updates the record for the role of this process. The caller has locked the directory. It
// reports whether the record has changed and must be stored.
func (s *Start) settle(c *Config, boot string) (changed bool) {
	if s.broken != nil && trial.Broken(s.broken) {
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
		case installed(r.Assigned, c.Version): // it was killed before that was stored
			r.Accept(c.Now())
		case s.Role.Why != "" && len(s.Role.Pods) > 0:
			r.Veto(s.Role.Why, s.Role.Pods, c.Now())
		case s.Role.Why != "":
			r.Fail(s.Role.Why, s.Role.Outage, c.Now())
		case r.Trial.Boot != boot:
			r.Fail("the machine went off, or restarted, during the trial", true, c.Now())
		default:
			r.Fail("the agent was killed, or stopped, during the trial", true, c.Now())
		}
	}
	if r.Tries() && r.Assigned.Program.Left == "" { // a package manager may have installed it meanwhile
		if newer, err := c.Newer(r.Assigned.Program.Version, c.Version); err == nil && !newer {
			r.Drop(fmt.Sprintf("islet %s is running now, which is not older", c.Version), c.Now())
			changed = true
		}
	}
	return changed
}
