package backup

import (
	"maps"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/regular"
)

// serviceFiles have the flags with which a service starts the agent, and the password of the node at a k3s server.
var serviceFiles = []string{
	"/etc/default/islet", "/etc/conf.d/islet", "/etc/default/kubelet", "/etc/sysconfig/kubelet", "/etc/rancher/node/password",
}

// configured returns the paths of the files and directories that the configuration names.
func (s Source) configured() []string {
	c, k := s.Config, &s.Config.Kubelet
	list := append([]string{
		config.DefaultDir, c.Kubeconfig, c.BootstrapKubeconfig, c.CredentialProviderConfig, k.StaticPodPath, k.TLSCertFile,
		k.TLSPrivateKeyFile, k.Authentication.X509.ClientCAFile, c.Edge.RegistryConfigDir, c.Edge.TPM.Policies,
		filepath.Join(c.Dirs.Root, "seccomp"), filepath.Join(c.Dirs.Root, "kubeadm-flags.env"),
		filepath.Join(c.Dirs.Root, "config.json"), // logins of registries
	}, c.Files()...)
	for _, h := range c.Edge.RuntimeHandlers {
		list = append(list, h.ShimConfig)
	}
	for _, file := range []string{c.Kubeconfig, c.BootstrapKubeconfig} {
		list = append(list, filesOfKubeconfig(file)...)
	}
	return append(list, serviceFiles...)
}

// kubeconfigFiles are the fields of a kubeconfig that name files.
var kubeconfigFiles = []string{"certificate-authority", "client-certificate", "client-key", "tokenFile"}

// filesOfKubeconfig returns the paths of the certificates, keys and tokens that a kubeconfig names. An unreadable kubeconfig has none.
func filesOfKubeconfig(path string) (list []string) {
	text, err := regular.Read(path, maxFile)
	if path == "" || err != nil {
		return nil
	}
	var k struct {
		Clusters []struct{ Cluster map[string]any }
		Users    []struct{ User map[string]any }
	}
	if yaml.Unmarshal(text, &k) != nil {
		return nil
	}
	add := func(fields map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			file, ok := fields[name].(string)
			if !ok || file == "" || !slices.Contains(kubeconfigFiles, name) {
				continue
			}
			if !filepath.IsAbs(file) {
				file = filepath.Join(filepath.Dir(path), file)
			}
			list = append(list, file)
		}
	}
	for _, c := range k.Clusters {
		add(c.Cluster)
	}
	for _, u := range k.Users {
		add(u.User)
	}
	return list
}
