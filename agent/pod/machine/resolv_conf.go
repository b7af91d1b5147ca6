package machine

import (
	"os"
	"slices"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
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

// readResolv returns the resolv.conf that pods with DNS policy Default inherit. On a host with systemd-resolved it
// returns the file that lists the real servers, because pods cannot reach the stub resolver on loopback.
// https://kubernetes.io/docs/tasks/administer-cluster/dns-debugging-resolution/#known-issues
func (n *Machine) readResolv() translate.DNS {
	path := *n.cfg.Kubelet.ResolverConfig
	if path == "" {
		return translate.DNS{}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return translate.DNS{}
	}
	dns := translate.ParseResolv(string(b))
	if slices.Equal(dns.Servers, []string{"127.0.0.53"}) {
		if b, err := os.ReadFile("/run/systemd/resolve/resolv.conf"); err == nil {
			return translate.ParseResolv(string(b))
		}
	}
	return dns
}
