package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/status"
	"github.com/islet-edge/islet/agent/translate"
)

// nodeFresh is for how long the node's addresses and resolv.conf are not looked
// at again. They are read when a pod starts, never by a timer.
const nodeFresh = 10 * time.Second

// node is what pods are told about the machine they run on.
type node struct {
	cfg *config.Config

	mu     sync.Mutex
	labels map[string]string
	open   *bool // for the scheduler; nil: not known
	read   time.Time
	last   translate.Node
}

func newNode(ctx context.Context, cfg *config.Config) (*node, error) {
	n := &node{cfg: cfg, labels: map[string]string{v1.LabelHostname: cfg.Node.Name}}
	for k, v := range cfg.Node.Labels {
		n.labels[k] = v
	}
	room, err := allocatable(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("look at what this machine has: %w", err)
	}
	k := cfg.Kubelet
	n.last = translate.Node{
		Name: cfg.Node.Name, ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, LogDir: k.PodLogsDir,
		SeccompDir: filepath.Join(cfg.Dirs.Root, "seccomp"), SeccompDefault: *k.SeccompDefault, CPUPeriod: cfg.CPUPeriod,
		OOMGroup: cfg.KillsWholeContainers(os.DirFS("/")), SwapCgroup: config.SwapCgroup(os.DirFS("/")),
		MemoryBytes: room.Memory().Value(), Allocatable: room,
	}
	return n, nil
}

// now is the node as it is.
func (n *node) now() translate.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if since := time.Since(n.read); n.read.IsZero() || since > nodeFresh || since < 0 {
		n.read = time.Now()
		n.last.IPs = n.addresses()
		n.last.Resolv = n.resolv()
	}
	return n.last
}

func (n *node) statusHost() status.Host {
	return status.Host{IPs: n.now().IPs, Runtime: "containerd"}
}

func (n *node) hostname(pod *v1.Pod) (host, fqdn string) {
	host, fqdn, err := translate.Hostname(pod, n.cfg.Kubelet.ClusterDomain)
	if err != nil { // running the sandbox says so
		return pod.Name, ""
	}
	return host, fqdn
}

// setLabels takes the labels that the control plane gave the Node.
func (n *node) setLabels(labels map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.labels = labels
}

// setSchedulable takes whether the scheduler may place pods here, and gives what was
// known before.
func (n *node) setSchedulable(yes bool) (before, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open != nil {
		before, known = *n.open, true
	}
	n.open = &yes
	return before, known
}

func (n *node) label() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.labels
}

// ips are the node's addresses.
func (n *node) ips() (out []netip.Addr) {
	for _, s := range n.now().IPs {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// addresses are --node-ip, or else what the machine would be reached at: the
// first address of each family that is neither loopback nor link-local nor of
// the pods' bridge.
func (n *node) addresses() (out []string) {
	for _, ip := range n.cfg.Node.IPs {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	if len(out) > 0 {
		return out
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var v4, v6 string
	for _, l := range links {
		if l.Flags&net.FlagUp == 0 || l.Flags&net.FlagLoopback != 0 || l.Name == n.cfg.Edge.BridgeName {
			continue
		}
		addrs, err := l.Addrs()
		if err != nil {
			continue // the interface went away meanwhile
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			switch ip := p.Addr(); {
			case err != nil || !ip.IsGlobalUnicast():
			case ip.Is4() && v4 == "":
				v4 = ip.String()
			case ip.Is6() && v6 == "":
				v6 = ip.String()
			}
		}
	}
	all := []string{v4, v6}
	if i := n.cfg.Node.IPs; len(i) > 0 && i[0].Is6() { // --node-ip=::
		slices.Reverse(all)
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// resolv is the resolv.conf that pods with DNS policy Default inherit. Of a
// host with systemd-resolved it is the one with the real servers, since the stub
// on loopback does not answer pods.
// https://kubernetes.io/docs/tasks/administer-cluster/dns-debugging-resolution/#known-issues
func (n *node) resolv() translate.DNS {
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
