package configure

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

// ErrBusy is returned while a trial is in progress.
var ErrBusy = trial.ErrBusy

// Offer offers a configuration for a trial. It returns an error that lists the invalid fields if the configuration is
// rejected. An operator's request, for which asked is true, may repeat a failed trial. If dry is true, Offer only
// checks the configuration.
func (k *Keeper) Offer(c *trial.Configuration, asked, dry bool) error {
	return k.offer(c, c.Consent, asked, dry)
}

func (k *Keeper) offer(c *trial.Configuration, consent []string, asked, dry bool) error {
	c.Asked = asked
	if c.Program == nil {
		c.Binding = config.Binding
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.checkBusy(c, asked); err != nil {
		return err
	}
	before := k.record
	if !dry {
		tried, changed := k.record.Assign(c, asked)
		if !changed {
			return nil
		}
		if !tried {
			return k.saveRecord(before)
		}
	}
	if err := k.checkConfiguration(c, consent); err != nil {
		k.record = before
		if dry || asked {
			return err
		}
		k.record.Refuse(c, err.Error(), k.c.Now())
		k.c.Events.Node(v1.EventTypeWarning, ReasonRefused,
			fmt.Sprintf("configuration %s from %s was rejected: %v", c.ID, c.Source, err))
		return errors.Join(err, k.saveRecord(before))
	}
	if dry {
		return nil
	}
	if err := k.saveRecord(before); err != nil {
		return err
	}
	select {
	case k.wakeSignal <- struct{}{}:
	default:
	}
	return nil
}

// checkBusy returns ErrBusy if no configuration can be accepted now. The caller holds mu.
func (k *Keeper) checkBusy(c *trial.Configuration, asked bool) error {
	// A source that is followed offers its configuration again later.
	if k.isEnding || k.record.Trial != nil || !asked && k.record.HasProgram() && k.record.Assigned.ID != c.ID {
		return ErrBusy
	}
	return nil
}

// checkConfiguration returns an error if a configuration is not valid for a trial. A program is not checked, because it runs with
// the configuration that is in use.
func (k *Keeper) checkConfiguration(c *trial.Configuration, consent []string) error {
	if c.Program != nil {
		return nil
	}
	return k.c.Start.checkConfiguration(c, consent, k.c.Config, len(activePods(k.c.Node.Pods())))
}

// saveRecord stores the record. If that fails, the parameter before becomes the record in memory again. A record on disk
// that could not be read but may be valid is not replaced, because the agent may be able to read it after a restart.
func (k *Keeper) saveRecord(before trial.Record) error {
	if k.recordError != nil && !trial.IsDamaged(k.recordError) {
		k.record = before
		if errors.Is(k.recordError, trial.ErrNewer) {
			return fmt.Errorf("the stored record was written by a newer islet and is not replaced; "+
				"install that version, or remove the file: %w", k.recordError)
		}
		return fmt.Errorf("the stored record could not be read when islet started and is not replaced; restart islet: %w", k.recordError)
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

// Revert offers the previous good configuration for a trial.
func (k *Keeper) Revert() (*trial.Configuration, error) {
	k.mu.Lock()
	good, before := k.record.Good, k.record.Before
	k.mu.Unlock()
	if good.IsLocal() && before.IsLocal() {
		return nil, errors.New("there is no previous configuration: the node uses its own files, and used nothing else before")
	}
	// Revert may also change back the protected fields that the good configuration has changed with consent.
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
