package join

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// A service is the service of the agent, if it is installed or planned. Its own flags override those in the flags file.
type service struct {
	flags  func() ([]string, bool) // returns false if there is no service; may be nil
	listed string                  // path of the flags file
	// isPlanned is set if the flags count that are set for a service that is not installed yet. They do not count for another
	// directory of the configuration: an agent with such a directory may be started by the system's own means, and the files of a
	// service may be left from a former installation.
	isPlanned bool
}

// config returns the configuration with which the service would start the agent now. It is nil if there is no service.
func (s *service) config() (*config.Config, error) {
	flags, ok := s.own()
	if !ok {
		return nil, nil
	}
	c, _, err := config.Load(flags)
	if err != nil {
		return nil, fmt.Errorf("the agent's service would not start: %w", err)
	}
	return c, nil
}

// own returns the service's own flags. It returns false if there is no service, and no file sets its flags.
func (s *service) own() ([]string, bool) {
	if s.flags != nil {
		if flags, ok := s.flags(); ok {
			return flags, true
		}
	}
	_, err := os.Stat(s.listed)
	return nil, err == nil && s.isPlanned
}

// serviceArgs names the place of the service's own flags in messages.
const serviceArgs = "ISLET_ARGS in /etc/default/islet"

// placesOf names the places that have one of the given flags. The place whose flags take precedence is first. If no place has such a flag,
// placesOf returns the place for new flags.
func (s *service) placesOf(names ...string) (list []string) {
	own, _ := s.own()
	isListed := config.HasFlag(config.ListedFlags(s.listed), names...)
	if config.HasFlag(own, names...) || !isListed {
		list = append(list, serviceArgs)
	}
	if isListed {
		list = append(list, s.listed)
	}
	return list
}

// remove returns advice to remove flags.
func (s *service) remove(names ...string) string {
	return "remove " + strings.Join(names, " and ") + " from " + strings.Join(s.placesOf(names...), " and ")
}

// set returns advice to set a flag.
func (s *service) set(name, value string) string {
	return fmt.Sprintf("set %s=%s in %s", name, value, s.placesOf(name)[0])
}

// checkService returns an error if the flags of the service override the settings that the command writes.
func (o *options) checkService() error {
	c, err := o.service.config()
	if c == nil {
		return err
	}
	joined := k3s.Directory(c.Edge.K3s.Directory)
	switch {
	case c.BootstrapKubeconfig != "" || c.Kubeconfig != "" && (joined == "" || c.Kubeconfig != joined.Kubeconfig()):
		return fmt.Errorf("the service starts the agent with --kubeconfig or --bootstrap-kubeconfig, so the node would stay in that "+
			"cluster: %s, and repeat the command", o.service.remove("--kubeconfig", "--bootstrap-kubeconfig"))
	case c.Node.Name != o.name:
		return fmt.Errorf("the service starts the agent as the node %q: %s, or join with --node-name=%s", c.Node.Name,
			o.service.set("--hostname-override", o.name), c.Node.Name)
	case c.Dirs.State != o.stateDir:
		return fmt.Errorf("the service starts the agent with another state directory: %s, or join with --state-dir=%s",
			o.service.set("--state-dir", o.stateDir), c.Dirs.State)
	}
	return nil
}

// checkHost returns an error if the agent could not start on this machine with the new KubeletConfiguration. Without a service, the agent
// has no flags, and the files of --config-dir. checkHost does not use the new EdgeConfiguration, which names files that do not exist yet.
func (o *options) checkHost(kubelet *configFile) error {
	args, isInstalled := o.service.own()
	dir := o.configDir
	if isInstalled {
		dir = config.DefaultDir
	}
	if err := config.CheckStart(args, dir, map[string][]byte{kubelet.Path: kubelet.New}, o.host); err != nil {
		return fmt.Errorf("the agent could not start on this machine: %w", err)
	}
	return nil
}

// checkJoined returns an error if the agent would not use what the command has written.
func (o *options) checkJoined(d k3s.Directory) error {
	c, err := o.service.config()
	if c == nil {
		return err
	}
	isServing := c.Kubelet.TLSCertFile == d.PairFile(k3s.ForServing)
	isTrusted := contains(c.Kubelet.Authentication.X509.ClientCAFile, d.ClientCA())
	own, _ := o.service.own()
	flags := slices.Concat(own, config.ListedFlags(o.service.listed))
	names := []string{"--config", "--edge-config"}
	switch hasJoined := c.Kubeconfig == d.Kubeconfig(); {
	case hasJoined && isServing && isTrusted:
		return nil
	case !isServing && config.HasFlag(flags, "--tls-cert-file"):
		names = []string{"--tls-cert-file", "--tls-private-key-file"}
	case !isTrusted && config.HasFlag(flags, "--client-ca-file"):
		names = []string{"--client-ca-file"}
	}
	return fmt.Errorf("the service starts the agent with other files than those in %s, or another file or flag overrides them: %s, or "+
		"join with --config-dir", o.configDir, o.service.remove(names...))
}

// contains reports whether a file of certificates is another one, or contains its text.
func contains(file, other string) bool {
	if file == other {
		return true
	}
	all, err := regular.Read(file, maxConfig)
	part, err2 := regular.Read(other, maxConfig)
	return err == nil && err2 == nil && len(part) > 0 && bytes.Contains(all, bytes.TrimSpace(part))
}
