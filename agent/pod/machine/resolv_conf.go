package machine

import (
	"os"
	"slices"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/regular"
)

// resolvProblem checks the host's resolv.conf. It returns the message of a kubelet about a problem, or "" if there
// is no problem.
func (n *Machine) resolvProblem() string {
	path := *n.cfg.Kubelet.ResolverConfig
	if path == "" {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return err.Error()
	}
	return n.readResolv().Limits(path, n.cfg.Kubelet.ClusterDomain)
}

// stubResolver is the address of systemd-resolved, which stub files contain. The file resolvedFile lists the real servers. It does not
// exist before systemd-resolved has started.
const (
	stubResolver = "127.0.0.53"
	resolvedFile = "/run/systemd/resolve/resolv.conf"
)

// maxResolv is the maximum size of a resolv.conf in bytes.
const maxResolv = 1 << 20

// readResolv returns the resolv.conf that pods with DNS policy Default inherit. On a host with systemd-resolved it
// returns the file that lists the real servers, because pods cannot reach the stub resolver on loopback.
// https://kubernetes.io/docs/tasks/administer-cluster/dns-debugging-resolution/#known-issues
func (n *Machine) readResolv() (dns translate.DNS) {
	for _, path := range n.resolvFiles() {
		if b, err := regular.Read(path, maxResolv); err == nil {
			dns = translate.ParseResolv(string(b))
		}
	}
	return dns
}

// resolvFiles returns the paths of the host's resolv.conf and, if that is a stub, of the file that replaces it.
func (n *Machine) resolvFiles() []string {
	path := *n.cfg.Kubelet.ResolverConfig
	if path == "" {
		return nil
	}
	b, err := regular.Read(path, maxResolv)
	if err == nil && slices.Equal(translate.ParseResolv(string(b)).Servers, []string{stubResolver}) {
		return []string{path, resolvedFile}
	}
	return []string{path}
}
