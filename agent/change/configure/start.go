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

// A Start is what a process knows of the configuration that the node was sent, before it has
// any.
type Start struct {
	Role guard.Role

	args   []string
	record trial.Record
	broken error                // the record cannot be used
	used   *trial.Configuration // what it runs by
	passed int                  // how many better ones of record.Kept it does not run by
	fell   error                // why not by the best of them
}

// Begin reads nothing yet; args are the agent's command line.
func Begin(role guard.Role, args []string) *Start { return &Start{Role: role, args: args} }

// Load is config.Load for this process, with what the node was sent and keeps, or tries. What
// it kept and cannot use any more, such as after a change of its own files, is no reason not
// to start: then what was good before counts, or its own files, and the Keeper reports why.
func Load(args []string) (*config.Config, []config.Notice, error) {
	return Begin(guard.Role{}, args).Load()
}

// Load is that of the package.
func (s *Start) Load() (*config.Config, []config.Notice, error) {
	if s.passed = s.Role.Passed; s.Role.Unfit != "" {
		s.fell = errors.New(s.Role.Unfit)
	}
	for errs := []error(nil); ; s.passed++ {
		last := true // also where nothing can be read that says what was sent
		c, notices, err := config.LoadWith(s.args, func(d config.Dirs) (*config.Sent, error) {
			s.record, s.broken = trial.Load(d.State)
			s.used, last = s.record.Use(true), true
			if kept := s.record.Kept(); !s.OnTrial() {
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

// Instead is the role of a process that runs by what was good before, or by the node's own files,
// as the host does not let this one run by what the node was sent. That may be over soon: the
// Keeper starts the agent anew to see. False: there is nothing else to run by.
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

// Unfit is the end of a process that the host does not let run as its configuration asks, and its
// exit code. A node that was sent that configuration, and kept it, goes on by what was good before:
// nobody may be able to reach it. The node's own files, or what is on trial, are for somebody else
// to change or go back from.
func (s *Start) Unfit(err error, log *slog.Logger) int {
	s.Role.Report(err.Error())
	log.Error("this host is not what the configuration asks for; islet doctor reports more", "error", err)
	if next, other := s.Instead(err); other {
		log.Error("the agent cannot start anew", "error", s.Role.Become(next))
	}
	return 1
}

func (s *Start) use(c *trial.Configuration) *config.Sent {
	if c == nil || c.Kubelet == "" && c.Edge == "" {
		return nil
	}
	return &config.Sent{Name: c.Source.String(), Kubelet: []byte(c.Kubelet), Edge: []byte(c.Edge), Consent: c.Consent, Binding: c.Binding}
}

// OnTrial reports whether this process is there to try a configuration.
func (s *Start) OnTrial() bool { return s.Role.Kind == guard.Trial }

// Holds reports whether this process tries something that has no say in which pods there are: none
// ends because nothing names it any more, such as a manifest that another version does not find.
func (s *Start) Holds(now *config.Config) bool {
	if !s.OnTrial() || s.record.Tries() {
		return s.OnTrial()
	}
	good, err := s.load(s.record.Good)
	return err != nil || config.SameManifests(good, now)
}

// samePressure reports whether by both what is on trial and what is good the same use of the machine is
// a pressure: one that comes during the trial is then what pods make.
func (s *Start) samePressure(now *config.Config) bool {
	good, err := s.load(s.record.Good)
	return err == nil && config.SamePressure(good, now)
}

// load reads a configuration as the next start would.
func (s *Start) load(c *trial.Configuration) (*config.Config, error) {
	next, _, err := config.LoadWith(s.args, func(config.Dirs) (*config.Sent, error) { return s.use(c), nil })
	return next, err
}

// check says, by field, what keeps a configuration from being tried where now counts and so
// many pods run. Consent names fields of the node's that it may change.
func (s *Start) check(c *trial.Configuration, consent []string, now *config.Config, pods int) error {
	next, err := s.load(c)
	if err != nil {
		return err
	}
	own, err := s.load(nil)
	if err != nil { // it can be used only with what is sent
		own = nil
	}
	errs := slices.Concat(config.Withheld(now, next, own, consent), config.Held(now, next, pods), next.CheckHost(os.DirFS("/")))
	if most := int(next.Kubelet.MaxPods); most < pods {
		errs = append(errs, fmt.Errorf("maxPods: Invalid value: %d: fewer than the %d pods that are here", most, pods))
	}
	return errors.Join(append(errs, authorities(now, next))...)
}

// granted are the fields that give power and that what the node keeps has since before that needed
// consent. Its own files are read only where it keeps something so old.
func (s *Start) granted(now *config.Config) []string {
	if s.used.IsLocal() || s.used.Program != nil || s.used.Binding >= config.Binding {
		return nil
	}
	own, err := s.load(nil)
	if err != nil { // it can be used only with what was sent
		return nil
	}
	names, err := config.Granted(own, now, s.used.Consent)
	if err != nil {
		return nil
	}
	return names
}

// settle brings the record up to date with what this process is, with the directory
// locked. Changed: it is to be stored.
func (s *Start) settle(c *Config, boot string) (changed bool) {
	if s.broken != nil && trial.Broken(s.broken) {
		if err := trial.SetAside(c.Dirs.State); err != nil {
			c.Log.Error("the record of the node's configuration stays where it is", "error", err)
		}
	}
	r := &s.record
	if s.OnTrial() {
		return false
	}
	if changed = r.Trial != nil; changed {
		switch {
		case installed(r.Assigned, c.Version): // and killed before that was stored
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
	if r.Tries() && r.Assigned.Program.Left == "" { // a package manager may have been faster
		if newer, err := c.Newer(r.Assigned.Program.Version, c.Version); err == nil && !newer {
			r.Drop(fmt.Sprintf("islet %s runs meanwhile, which is as new", c.Version), c.Now())
			changed = true
		}
	}
	return changed
}
