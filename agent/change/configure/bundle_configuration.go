package configure

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

// PlanBundle validates the configuration of a bundle. It returns the configuration, and the ID of the configuration that it replaces. This
// ID is empty if the bundle's configuration is already in use. If both documents are empty, PlanBundle plans the return to the node's own
// files. It then returns nil unless the configuration in use came from a bundle.
func (k *Keeper) PlanBundle(kubelet, edge string, from trial.Source) (c *trial.Configuration, before string, err error) {
	k.mu.Lock()
	good, assigned, isEnding, follows := k.record.Good, k.record.Assigned, k.isEnding, k.followed()
	fallback := k.fallbackReason
	k.mu.Unlock()
	consent := k.c.Edge.Configuration.Consent
	switch isEmpty := strings.TrimSpace(kubelet+edge) == ""; {
	case isEmpty && (good == nil || good.Source.Bundle == ""):
		return nil, "", nil
	case isEmpty:
		c = trial.New("", "", nil, from, k.c.Now())
	case follows != "":
		return nil, "", fmt.Errorf("the bundle contains a configuration, but the node follows %s: "+
			"remove kubelet.yaml and edge.yaml from the bundle, or stop following the ConfigMap", follows)
	default:
		c = trial.New(kubelet, edge, consent, from, k.c.Now())
	}
	switch {
	case good.Reference() == c.Reference() && fallback != nil:
		return nil, "", fmt.Errorf("the configuration of the bundle was accepted, but the node cannot use it at present: %w", fallback)
	case good.Reference() == c.Reference():
		return c, "", nil
	case isEnding || assigned != nil:
		return nil, "", fmt.Errorf("the configuration of the bundle cannot be tried yet: %w", ErrBusy)
	}
	if err := k.offer(c, bundleConsent(c, good), true, true); err != nil {
		return nil, "", err
	}
	next, err := k.c.Start.loadConfiguration(c)
	if err != nil {
		return nil, "", err
	}
	if names := weakenedFields(k.c.Config, next, edge); len(names) > 0 {
		return nil, "", fmt.Errorf("%s: without this setting in edge.yaml of the bundle, the node would again trust removed keys or "+
			"require fewer signatures: add the setting", strings.Join(names, ", "))
	}
	return c, good.Reference(), nil
}

// bundleConsent returns the protected fields that the bundle's configuration c may change. If c returns to the node's own files, it may
// also revert the fields that the configuration in use was allowed to change.
func bundleConsent(c, good *trial.Configuration) []string {
	if c.IsLocal() && good != nil {
		return good.Consent
	}
	return c.Consent
}

// followed returns the name of the ConfigMap that the node follows, or "". The caller holds mu.
func (k *Keeper) followed() string {
	good := k.record.Good
	switch {
	case k.c.Standalone():
		return ""
	case k.followedSource.Source != "":
		return k.followedSource.Source
	case k.c.Edge.Configuration.ConfigMap != "":
		return "ConfigMap " + k.c.Edge.Configuration.ConfigMap
	case good != nil && good.Source.Name != "":
		return good.Source.String()
	}
	return ""
}

// AssignBundle assigns a configuration that PlanBundle has returned. Its trial begins when the bundle is on trial.
func (k *Keeper) AssignBundle(c *trial.Configuration) error {
	k.mu.Lock()
	good := k.record.Good
	k.mu.Unlock()
	return k.offer(c, bundleConsent(c, good), true, false)
}

// BundleResult returns the result of the trial of a bundle's configuration. If the verdict is Bad, why is the reason.
func (k *Keeper) BundleResult(id string) (v trial.Verdict, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.record
	isGood := r.Good.Reference() == id
	switch {
	case k.c.Start.OnTrial() || k.isEnding || r.Assigned != nil && r.Assigned.Reference() == id:
		return trial.Waiting, ""
	case isGood && k.fallbackReason != nil:
		return trial.Bad, "its configuration cannot be used: " + k.fallbackReason.Error()
	case isGood:
		return trial.Good, ""
	case r.Failed != nil && r.Failed.ID == id:
		return trial.Bad, "its configuration has failed: " + r.Failed.Why
	}
	return trial.Bad, "another configuration was requested during the trial of its configuration"
}

// UsesConfiguration reports whether this process uses the configuration id.
func (k *Keeper) UsesConfiguration(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.activeConfiguration().Reference() == id
}

// AbandonBundle drops the configuration id, which the record of bundles already lists as abandoned. If this process uses that
// configuration, the agent restarts with the previous one. AbandonBundle returns true after the change is stored.
func (k *Keeper) AbandonBundle(id string) (done bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	const why = "the bundle with this configuration has failed or was reverted"
	switch {
	case k.isEnding:
		return false, nil
	case k.c.Start.OnTrial() && k.record.IsAbandoned(id): // another configuration or version is on trial
		return true, nil
	case k.c.Start.OnTrial(): // the guard starts the agent with the good configuration
		k.isEnding = true
		k.c.Start.Role.ReportResult(why)
		return false, nil
	case k.recordError != nil && !trial.IsDamaged(k.recordError):
		return false, k.recordError
	}
	before := k.record
	k.record.Abandon(id)
	if k.record.Good != before.Good {
		k.record, k.isEnding = before, true // the next process stores it
		k.c.Log.Warn("the agent restarts with the configuration that was in use before the bundle; the pods keep running", "reason", why)
		k.c.End(&Restart{guard.Role{}})
		return false, nil
	}
	if !k.record.HasDropped(k.c.Now()) && !k.isUnsaved {
		return true, nil
	}
	err = k.saveRecord(before)
	k.isUnsaved = k.isUnsaved && err != nil
	return err == nil, err
}

// CheckReturn returns an error if the node cannot revert the configuration of a bundle. If another configuration was accepted after the
// bundle's, nothing needs to be reverted, and CheckReturn returns nil.
func (k *Keeper) CheckReturn(c trial.Change) error {
	k.mu.Lock()
	good, before := k.record.Good, k.record.Before
	k.mu.Unlock()
	if good.Reference() != c.ID {
		return nil
	}
	if before.Reference() != c.Before {
		return fmt.Errorf("the configuration %s, which was in use before the bundle, is no longer stored, because other configurations "+
			"were sent later: apply a bundle with the wanted configuration and a higher number instead", c.Before)
	}
	next, err := k.c.Start.loadConfiguration(before)
	if err != nil {
		return fmt.Errorf("the configuration that was in use before the bundle is no longer valid: %w", err)
	}
	if names := weakenedFields(k.c.Config, next, ""); len(names) > 0 {
		return fmt.Errorf("%s: the configuration that was in use before the bundle trusts removed keys or requires fewer signatures: "+
			"apply a bundle with the wanted pods and a higher number instead", strings.Join(names, ", "))
	}
	return nil
}

// weakenedFields returns the names of the fields in which the configuration next is less strict than the configuration current: next
// accepts a signing key that current does not accept, or requires fewer signatures. It ignores keys and thresholds that document, an
// EdgeConfiguration, sets explicitly.
func weakenedFields(current, next *config.Config, document string) (names []string) {
	a, b, named := &current.Edge, &next.Edge, config.EdgeFields([]byte(document))
	add := func(name string, now, next, namedKeys []string, most, least, namedThreshold int32) {
		isRemoved := len(next) > 0 && least < most && namedThreshold == 0
		for _, key := range next {
			isRemoved = isRemoved || !slices.Contains(now, key) && !slices.Contains(namedKeys, key)
		}
		if isRemoved {
			names = append(names, name)
		}
	}
	add("bundle.keys", a.Bundle.Keys, b.Bundle.Keys, named.Bundle.Keys, a.Bundle.Threshold, b.Bundle.Threshold, named.Bundle.Threshold)
	add("update.keys", a.Update.Keys, b.Update.Keys, named.Update.Keys, a.Update.Threshold, b.Update.Threshold, named.Update.Threshold)
	add("update.indexKeys", a.Update.IndexKeys, b.Update.IndexKeys, named.Update.IndexKeys, 1, 1, 1)
	return names
}

// bundleSource returns the name of the bundle whose configuration is in use or waits for its trial, or "".
func (k *Keeper) bundleSource() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range []*trial.Configuration{k.record.Good, k.record.Assigned} {
		if c != nil && c.Source.Bundle != "" {
			return c.Source.String()
		}
	}
	return ""
}

// errRuntime rejects a bundle that sets containerRuntimeEndpoint, because a remote runtime cannot use bundles.
var errRuntime = errors.New("containerRuntimeEndpoint: Forbidden: a bundle cannot change the runtime, " +
	"because only islet's own one can use bundles")
