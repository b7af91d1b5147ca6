package setup

import (
	"fmt"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
)

// plan returns the files for a source that was checked. It returns an error if the agent could not start on this machine with them. If such
// files were put in place, the node would lose its settings that work, and the service would repeat a start that fails.
func (s *Setup) plan(src *source, name string, r *record, joined *k3s.Record) (*plan, error) {
	p, err := newPlan(src, s.Dir, name, r, joined)
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{}
	for _, t := range p.targets {
		contents[t.Path] = t.Data // nil if the target removes the file
	}
	if err := s.checkStart(contents); err != nil {
		return nil, fmt.Errorf("the agent could not start on this machine with this file: %w", err)
	}
	return p, nil
}

// checkStart returns why the agent cannot start on this machine with the node's own files, of which some have other contents.
func (s *Setup) checkStart(planned map[string][]byte) error {
	return config.CheckStart(s.Args, s.Dir, planned, s.Host)
}

// unfit returns why the agent cannot start on this machine now, after a person has edited the files in the directory of the configuration,
// or has turned on swap. Without it, only the log of the agent has the reason. An agent whose sent configuration does not fit falls back to
// the node's own files, so both must not fit.
func (s *Setup) unfit() error {
	err := s.checkStart(nil)
	if err == nil {
		return nil
	}
	if c, _, failed := s.Load(s.Args); failed == nil && len(c.CheckHost(s.Host)) == 0 {
		return nil
	}
	return err
}
