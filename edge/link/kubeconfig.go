package link

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// readKubeconfig returns a kubeconfig and the user of its current context. Relative paths are made
// absolute.
func readKubeconfig(path string) (*api.Config, *api.AuthInfo, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return parseKubeconfig(text, path)
}

func parseKubeconfig(text []byte, path string) (*api.Config, *api.AuthInfo, error) {
	cfg, err := clientcmd.Load(text)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	for _, c := range cfg.Clusters {
		if c == nil {
			return nil, nil, fmt.Errorf("kubeconfig %s: a cluster is empty", path)
		}
		c.LocationOfOrigin = path
	}
	for _, a := range cfg.AuthInfos {
		if a == nil {
			return nil, nil, fmt.Errorf("kubeconfig %s: a user is empty", path)
		}
		a.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(cfg); err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	context := cfg.Contexts[cfg.CurrentContext]
	if context == nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: its current-context %q is not among its contexts", path, cfg.CurrentContext)
	}
	user := cfg.AuthInfos[context.AuthInfo]
	if user == nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: user %q of its current context is not among its users", path, context.AuthInfo)
	}
	return cfg, user, nil
}

// restConfig converts a kubeconfig to the configuration of the client. It replaces paths with the content of their files. Two
// configurations can therefore be compared by their content.
func restConfig(cfg *api.Config) (*rest.Config, error) {
	type file struct {
		path *string
		data *[]byte
	}
	var files []file
	current := cfg.Contexts[cfg.CurrentContext]
	if u := cfg.AuthInfos[current.AuthInfo]; u != nil {
		files = append(files, file{&u.ClientCertificate, &u.ClientCertificateData}, file{&u.ClientKey, &u.ClientKeyData})
	}
	if c := cfg.Clusters[current.Cluster]; c != nil {
		files = append(files, file{&c.CertificateAuthority, &c.CertificateAuthorityData})
	}
	for _, f := range files { // clientcmd could also read the files, but its errors do not wrap the errors of the disk
		if *f.path != "" && len(*f.data) == 0 {
			data, err := os.ReadFile(*f.path)
			if err != nil {
				return nil, err
			}
			*f.data = data
		}
		*f.path = ""
	}
	return clientcmd.NewNonInteractiveClientConfig(*cfg, cfg.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
}

// readRest reads a kubeconfig and returns the configuration of the client.
func readRest(path string) (*rest.Config, error) {
	cfg, _, err := readKubeconfig(path)
	if err != nil {
		return nil, err
	}
	out, err := restConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return out, nil
}

// makeKubeconfig returns the same kubeconfig that a kubelet writes after its TLS bootstrap. It has the server of the bootstrap kubeconfig.
// It refers to the given file with the certificate and the key.
func makeKubeconfig(from *api.Config, pairFile string) (*api.Config, *api.AuthInfo, error) {
	cluster := from.Clusters[from.Contexts[from.CurrentContext].Cluster]
	if cluster == nil {
		return nil, nil, errors.New("the bootstrap kubeconfig has no cluster")
	}
	to, user := api.NewConfig(), &api.AuthInfo{ClientCertificate: pairFile, ClientKey: pairFile}
	to.Clusters["default-cluster"] = cluster
	to.AuthInfos["default-auth"] = user
	to.Contexts["default-context"] = &api.Context{Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}
	to.CurrentContext = "default-context"
	return to, user, nil
}

func writeKubeconfig(path string, from *api.Config, pairFile string) error {
	to, _, err := makeKubeconfig(from, pairFile)
	if err != nil {
		return err
	}
	text, err := clientcmd.Write(*to)
	if err != nil {
		return err
	}
	return writeFile(path, text)
}

// Membership returns the server of a kubeconfig, and the name of the node in its client certificate. The name is empty if the kubeconfig
// has no certificate of a node.
func Membership(path string) (server, node string, err error) {
	cfg, user, err := readKubeconfig(path)
	if err != nil {
		return "", "", err
	}
	if c := cfg.Clusters[cfg.Contexts[cfg.CurrentContext].Cluster]; c != nil {
		server = c.Server
	}
	if leaf, err := leafOfUser(user); err == nil { // the agent reports the error
		if name, ok := strings.CutPrefix(leaf.Subject.CommonName, commonName("")); ok {
			node = name
		}
	}
	return server, node, nil
}
