package configure

import (
	"errors"
	"fmt"
	"slices"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
)

// Local is the interface to the Keeper for an operator at the node.
type Local struct{ *Keeper }

// Apply offers a KubeletConfiguration, an EdgeConfiguration or both.
func (l Local) Apply(documents []byte, from string, o api.ConfigurationOptions) (none api.ConfigurationRef, _ error) {
	for _, f := range o.Consent {
		if !config.IsBound(f) {
			return none, fmt.Errorf("consent: %q is not a field that belongs to the node; docs/configuration.md lists them", f)
		}
	}
	kubelet, edge, err := config.Split(from, documents)
	if err != nil {
		return none, err
	}
	if len(kubelet)+len(edge) == 0 {
		return none, errors.New(from + " contains neither a KubeletConfiguration nor an EdgeConfiguration")
	}
	c := trial.New(string(kubelet), string(edge), append(slices.Clone(o.Consent), l.c.Edge.Configuration.Consent...),
		trial.Source{File: from}, l.c.Now())
	c.DespitePods = o.DespitePods
	return configurationRef(c), l.Offer(c, true, o.Dry)
}

// Revert calls the Keeper's Revert.
func (l Local) Revert() (api.ConfigurationRef, error) {
	c, err := l.Keeper.Revert()
	if err != nil {
		return api.ConfigurationRef{}, err
	}
	return configurationRef(c), nil
}
