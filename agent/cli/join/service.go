package join

import (
	"errors"
	"fmt"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
)

// serviceConfig returns the configuration with which the installed service would start the agent now. It is nil if there is no service.
func serviceConfig(t *command.Tool) (*config.Config, error) {
	if t.ServiceFlags == nil {
		return nil, nil
	}
	flags, ok := t.ServiceFlags()
	if !ok {
		return nil, nil
	}
	c, _, err := config.Load(flags)
	if err != nil {
		return nil, fmt.Errorf("the agent's service would not start: %w", err)
	}
	return c, nil
}

// checkService returns an error if the flags of the service are stronger than what the command writes.
func (o *options) checkService() error {
	c, err := o.service()
	if c == nil {
		return err
	}
	joined := k3s.Directory(c.Edge.K3s.Directory)
	switch {
	case c.BootstrapKubeconfig != "" || c.Kubeconfig != "" && (joined == "" || c.Kubeconfig != joined.Kubeconfig()):
		return errors.New("the service starts the agent with --kubeconfig or --bootstrap-kubeconfig, so the node would stay in that " +
			"cluster: remove these flags from ISLET_ARGS in /etc/default/islet, and repeat the command")
	case c.Node.Name != o.name:
		return fmt.Errorf("the service starts the agent as the node %q: add --hostname-override=%s to ISLET_ARGS in /etc/default/islet, "+
			"or join with --node-name=%s", c.Node.Name, o.name, c.Node.Name)
	case c.Dirs.State != o.stateDir:
		return fmt.Errorf("the service starts the agent with another state directory: join with --state-dir=%s", c.Dirs.State)
	}
	return nil
}

// checkJoined returns an error if the agent would not use what the command has written.
func (o *options) checkJoined(d k3s.Directory) error {
	c, err := o.service()
	if c == nil {
		return err
	}
	if c.Kubeconfig != d.Kubeconfig() || c.Kubelet.TLSCertFile != d.PairFile(k3s.ForServing) {
		return fmt.Errorf("the service starts the agent with other files than those in %s, or another file is stronger: remove --config "+
			"and --edge-config from ISLET_ARGS in /etc/default/islet, or join with --config-dir", o.configDir)
	}
	return nil
}
