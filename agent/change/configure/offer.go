package configure

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

// An ErrBusy says that a trial is under way.
var ErrBusy = errors.New("another configuration, or version, is on trial; wait until that has ended (islet config)")

// Offer takes a configuration from whoever may send one. The error says, by field, why it is
// not tried. A person who asks for it has one tried again that failed; dry only checks.
func (k *Keeper) Offer(c *trial.Configuration, asked, dry bool) error {
	return k.offer(c, c.Consent, asked, dry)
}

func (k *Keeper) offer(c *trial.Configuration, consent []string, asked, dry bool) error {
	if c.Asked = asked; c.Program == nil {
		c.Binding = config.Binding
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.busy(c, asked); err != nil {
		return err
	}
	before := k.record
	if !dry {
		tried, changed := k.record.Assign(c, asked)
		if !changed {
			return nil
		}
		if !tried {
			return k.save(before)
		}
	}
	if err := k.check(c, consent); err != nil {
		k.record = before
		if dry || asked {
			return err
		}
		k.record.Refuse(c, err.Error(), k.c.Now())
		k.c.Events.Node(v1.EventTypeWarning, ReasonRefused, fmt.Sprintf("configuration %s of %s is not tried: %v", c.ID, c.Source, err))
		return errors.Join(err, k.save(before))
	}
	if dry {
		return nil
	}
	if err := k.save(before); err != nil {
		return err
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// busy says why nothing new is taken now. The caller holds mu.
func (k *Keeper) busy(c *trial.Configuration, asked bool) error {
	// What is followed comes again.
	if k.ending || k.record.Trial != nil || !asked && k.record.Tries() && k.record.Assigned.ID != c.ID {
		return ErrBusy
	}
	return nil
}

// check says what keeps something from being tried. A program runs by the configuration that is
// in use.
func (k *Keeper) check(c *trial.Configuration, consent []string) error {
	if c.Program != nil {
		return nil
	}
	return k.c.Start.check(c, consent, k.c.Config, len(active(k.c.Node.Pods())))
}

// save stores the record; where that fails it is as before. One that is there and may be good is
// not replaced: a later start reads it.
func (k *Keeper) save(before trial.Record) error {
	if k.broken != nil && !trial.Broken(k.broken) {
		k.record = before
		if errors.Is(k.broken, trial.ErrNewer) {
			return fmt.Errorf("nothing new is stored over what only a newer islet can use; install that one, or remove the file: %w", k.broken)
		}
		return fmt.Errorf("nothing new is stored over what could not be read when islet started; restart it: %w", k.broken)
	}
	if err := trial.Save(k.dir, k.record); err != nil {
		k.record = before
		return err
	}
	if k.c.Changed != nil {
		k.c.Changed()
	}
	return nil
}

// Revert offers the good configuration from before the one that is good now.
func (k *Keeper) Revert() (*trial.Configuration, error) {
	k.mu.Lock()
	good, before := k.record.Good, k.record.Before
	k.mu.Unlock()
	if good.IsLocal() && before.IsLocal() {
		return nil, errors.New("there is nothing to go back to: the node uses its own files, and used nothing else before")
	}
	// What the good one was allowed to change may be changed back.
	var consent []string
	if good != nil {
		consent = append(consent, good.Consent...)
	}
	c := trial.New("", "", nil, trial.Source{}, k.c.Now())
	if before != nil {
		c = trial.New(before.Kubelet, before.Edge, before.Consent, before.Source, k.c.Now())
	}
	return c, k.offer(c, append(consent, c.Consent...), true, false)
}
