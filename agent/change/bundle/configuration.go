package bundle

import (
	"errors"
	"fmt"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
)

// Configurations tries the configurations of bundles, as those that are sent to the node. *configure.Keeper implements it.
type Configurations interface {
	// PlanBundle checks the documents, which may be empty. It returns nil if the bundle says nothing about the configuration. Otherwise it
	// returns the configuration, and the ID of the configuration that it replaces, which is empty if the configuration is in use already.
	PlanBundle(kubelet, edge string, from trial.Source) (c *trial.Configuration, before string, err error)
	// AssignBundle stores the configuration. Its trial begins when HoldTrials allows it, and restarts the agent.
	AssignBundle(c *trial.Configuration) error
	// BundleResult returns the result of that trial, and the reason for a failure.
	BundleResult(id string) (v trial.Verdict, why string)
	// AbandonBundle gives up a configuration that the record of bundles gives up. If it is in use, the agent restarts with the previous
	// configuration it. AbandonBundle returns true when this is stored.
	AbandonBundle(id string) (done bool, err error)
	// CheckReturn returns an error if the node cannot return to the configuration before the bundle.
	CheckReturn(c trial.Change) error
	// UsesConfiguration reports whether the configuration with an ID is in use.
	UsesConfiguration(id string) bool
}

// planConfiguration checks the configuration of a bundle: see Configurations.PlanBundle.
func (n *Node) planConfiguration(s *staged) (*trial.Configuration, string, error) {
	if n.configurations == nil {
		if s.docs.kubelet+s.docs.edge != "" {
			return nil, "", errors.New("this node cannot try the configuration of a bundle")
		}
		return nil, "", nil
	}
	from := trial.Source{File: "bundle " + s.String(), Bundle: s.Digest.String()}
	c, before, err := n.configurations.PlanBundle(s.docs.kubelet, s.docs.edge, from)
	if errors.Is(err, trial.ErrBusy) {
		err = busyError{err}
	}
	return c, before, err
}

// assignConfiguration assigns the configuration of a bundle, unless it is in use already. The result is nil if the bundle says nothing
// about the configuration. The caller holds n.changing. Until the record has the trial of the bundle, the assignment has no effect.
func (n *Node) assignConfiguration(s *staged) (*trial.Change, error) {
	c, before, err := n.planConfiguration(s)
	if c == nil || err != nil {
		return nil, err
	}
	change := &trial.Change{ID: c.ID, Before: before}
	if before == "" {
		return change, nil
	}
	if err := n.configurations.AssignBundle(c); err != nil {
		if errors.Is(err, trial.ErrBusy) {
			err = busyError{err}
		}
		return nil, err
	}
	n.step("assigned")
	return change, nil
}

// settle continues the trial of the bundle's configuration, or the return to the previous configuration. It returns true if pods may be
// delivered: the pods of the bundle in force in r, with its configuration.
func (l *loop) settle(r *Record) bool {
	if r.Trial != nil && r.Trial.Configuring {
		l.configure(r.Trial)
	}
	if id := l.now().Abandoned; id != "" {
		l.abandon(id)
	}
	*r = l.now()
	// While the configuration waits for its trial or is on trial, the pods of the current bundle keep running.
	return r.Abandoned == ""
}

// abandon makes the node use the configuration before an abandoned one. The agent may restart.
func (l *loop) abandon(id string) {
	done, err := l.configurations.AbandonBundle(id)
	if err == nil && done {
		l.changing.Lock()
		err = l.change(func(r *Record) error {
			r.Abandoned = ""
			return nil
		})
		l.changing.Unlock()
	}
	if err != nil && err.Error() != l.said {
		l.said = err.Error()
		l.c.Log.Error("the node cannot return to the configuration before the bundle yet", "error", err)
	}
}

// configure makes a bundle in force whose configuration was accepted, and ends the trial of one whose configuration has failed.
func (l *loop) configure(t *Trial) {
	switch v, why := l.configurations.BundleResult(l.now().Configurations[t.Digest].ID); v {
	case trial.Good:
		l.end((*Record).Configured, t)
	case trial.Bad:
		l.end(func(r *Record) { r.Fail(why, Failed, l.c.Now()) }, t)
	}
}

// checkReturning returns an error while the node returns to the configuration before the bundle. The record has only one abandoned
// configuration. And until the agent restarts, it uses the abandoned one, so another bundle would count it as in use already.
func (n *Node) checkReturning() error {
	if n.now().Abandoned == "" {
		return nil
	}
	return busyError{errors.New("the node returns to the configuration before the bundle: " +
		"wait until islet bundle status does not report this any more")}
}

// checkReturn returns an error if a revert would need a configuration that the node must not use. The end of a trial needs only the one
// that was in use before the trial. The caller holds n.changing.
func (n *Node) checkReturn() error {
	if err := n.checkReturning(); err != nil {
		return err
	}
	r := n.now()
	if r.Trial != nil || r.Current == nil {
		return nil
	}
	c := r.Configurations[r.Current.Digest]
	if c.Before == "" {
		return nil
	}
	if err := n.configurations.CheckReturn(c); err != nil {
		return fmt.Errorf("%s: %w", r.Current, err)
	}
	return nil
}

// describeConfiguration returns the configuration of the bundle in force for the API, or nil.
func (n *Node) describeConfiguration(r *Record) *api.BundleConfiguration {
	b := r.InForce()
	if b == nil {
		return nil
	}
	c, ok := r.Configurations[b.Digest]
	if !ok || n.configurations == nil {
		return nil
	}
	return &api.BundleConfiguration{ID: c.ID, InUse: n.configurations.UsesConfiguration(c.ID)}
}
