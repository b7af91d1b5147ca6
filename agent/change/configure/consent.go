package configure

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
)

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
	ofBundle := c.Source.Bundle != ""
	errs := slices.Concat(config.CheckConsent(now, next, own, consent), config.CheckHeld(now, next, pods, ofBundle),
		next.CheckHost(os.DirFS("/")))
	if limit := int(next.Kubelet.MaxPods); limit < pods {
		errs = append(errs, fmt.Errorf("maxPods: Invalid value: %d: fewer than the %d pods of this node", limit, pods))
	}
	if ofBundle && next.RuntimeEndpoint != now.RuntimeEndpoint {
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
