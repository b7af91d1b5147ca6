package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// An Interface is a network interface of the host.
type Interface struct {
	Name      string
	Index     int
	Kind      string // bridge, vxlan, dummy ...
	Addresses []netip.Prefix
	Users     int  // interfaces that are ports of it, or lie on it
	Port      bool // it is a port itself
}

// nodeInterfaces are what pod networks and service proxies of other nodes make,
// with their kinds. Only these are ever removed: a bridge of another name may be a
// person's, or of virtual machines that are off.
var nodeInterfaces = map[string]string{
	"cni0": "bridge", "cbr0": "bridge", "kube-bridge": "bridge", "flannel.1": "vxlan", "flannel-v6.1": "vxlan",
	"kube-ipvs0": "dummy", "kube-dummy-if": "dummy", "nodelocaldns": "dummy",
}

// nodePrograms own such interfaces while they run. Pods' processes count: kube-proxy
// and the add-ons run in some.
var nodePrograms = []string{
	"kubelet", "k3s", "k3s-agent", "k3s-server", "k0s", "rke2", "kubelite", "edgecore", "crio",
	"flanneld", "kube-proxy", "kube-router", "kindnetd", "cilium-agent", "calico-node", "node-cache",
}

// formerNode names what another kubelet or k3s left on this machine and stands in
// the way of pods.
func (p *patient) formerNode(context.Context) {
	running := p.processes()
	before := len(p.findings)
	p.formerInterfaces(running)
	p.formerShims(running)
	p.formerConflists()
	p.formerRules(running)
	p.formerFiles()
	if len(p.findings) == before {
		p.add("former-node", OK, "", "nothing is left of another kubelet or k3s")
	}
}

func (p *patient) formerInterfaces(running []process) {
	if p.Interfaces == nil {
		return
	}
	list, err := p.Interfaces()
	if err != nil {
		p.add("former-interface", Warning, "run it as root", "the network interfaces cannot be listed: %v", err)
		return
	}
	owner := ""
	for _, proc := range running {
		if slices.Contains(nodePrograms, proc.name) && !proc.ours {
			owner = fmt.Sprintf("%s (process %d)", proc.name, proc.pid)
		}
	}
	for _, i := range list {
		kind, known := nodeInterfaces[i.Name]
		clash := p.clashes(i)
		if i.Name == p.Bridge || slices.Contains(p.Bridges, i.Name) || !(known && i.Kind == kind) && !(clash && i.Kind == "bridge") {
			continue
		}
		whose := owner
		if whose == "" && p.configured(i.Name) {
			whose = "a CNI configuration in " + p.CNIConfDir
		}
		p.formerInterface(i, clash, whose)
	}
}

// formerInterface reports an interface. It is in the way when it has the pods'
// addresses, and nobody's when no program and no other interface uses it.
func (p *patient) formerInterface(i Interface, clash bool, owner string) {
	severity, what := Info, fmt.Sprintf("the %s %s %v is there, as another node's network makes it", i.Kind, i.Name, i.Addresses)
	if clash {
		severity = Error
		what = fmt.Sprintf("the %s %s has addresses of the pods' network %v: no pod on the built-in network can start", i.Kind, i.Name,
			i.Addresses)
	}
	switch {
	case owner != "" && clash:
		p.add("former-interface", severity, "it is in use by "+owner+": stop that, or choose another podCIDR", "%s", what)
	case owner != "":
		return // somebody's, and in nobody's way
	case i.Users > 0 || i.Port:
		p.add("former-interface", severity, fmt.Sprintf("%d interfaces are on it (ip link show master %s): containers of another "+
			"runtime, which are to be stopped first (k3s-killall.sh does), or reboot", i.Users, i.Name), "%s", what)
	case nodeInterfaces[i.Name] != i.Kind:
		p.add("former-interface", severity, fmt.Sprintf("if it is nobody's, ip link delete %s; else choose another podCIDR", i.Name),
			"%s", what)
	default:
		p.add("former-interface", severity, fmt.Sprintf("islet doctor --fix removes it, as ip link delete %s does: nobody uses it",
			i.Name), "%s", what)
		p.remedy("interface "+i.Name, func() error { return p.RemoveInterface(i.Name, i.Index) })
	}
}

// clashes reports whether the built-in network cannot be used beside an interface.
func (p *patient) clashes(i Interface) bool {
	if p.ForeignNetwork {
		return false
	}
	for _, a := range i.Addresses {
		for _, cidr := range p.PodCIDRs {
			gateway := cidr.Masked().Addr().Next()
			if a.Addr() == gateway || a.Bits() >= cidr.Bits() && !a.IsSingleIP() && cidr.Contains(a.Addr()) {
				return true
			}
		}
	}
	return false
}

// conflist is what of a CNI configuration says whose interfaces it makes.
type conflist struct {
	file    string
	Type    string
	Plugins []struct{ Type string }
	text    string
	broken  error // what is wrong with the file; nil: nothing
}

// conflists reads the CNI directory.
func (p *patient) conflists() (out []conflist) {
	for _, name := range p.entries(p.CNIConfDir) {
		if ext := path.Ext(name); ext != ".conf" && ext != ".conflist" && ext != ".json" {
			continue
		}
		c := conflist{file: path.Join(p.CNIConfDir, name)}
		c.text = p.file(c.file)
		if p.BrokenCNI != nil {
			c.broken = p.BrokenCNI(c.file)
		}
		if json.Unmarshal([]byte(c.text), &c) == nil || c.broken != nil {
			out = append(out, c)
		}
	}
	return out
}

func (c conflist) types() (out []string) {
	if c.Type != "" {
		out = append(out, c.Type)
	}
	for _, p := range c.Plugins {
		out = append(out, p.Type)
	}
	return out
}

// configured reports whether a CNI configuration may make the interface: it names
// it, or it is of a type that makes it unnamed.
func (p *patient) configured(name string) bool {
	return slices.ContainsFunc(p.conflists(), func(c conflist) bool {
		for _, t := range c.types() {
			if t == "flannel" || t == "bridge" && name == "cni0" && !strings.Contains(c.text, `"bridge":`) {
				return true
			}
		}
		return strings.Contains(c.text, `"`+name+`"`)
	})
}

// builtInStepsIn reports whether pods get the built-in network because every CNI configuration
// is broken or wants a plugin that is missing.
func (p *patient) builtInStepsIn() bool {
	if p.HasPlugin == nil || !p.Alone {
		return false
	}
	for _, c := range p.conflists() {
		missing := func(t string) bool { return t != "" && !p.HasPlugin(t) }
		if (p.OfAnother == nil || p.OfAnother(c.file) == "") && c.broken == nil && !slices.ContainsFunc(c.types(), missing) {
			return false
		}
	}
	return true
}

// formerConflists looks for configurations that are broken, and for those of add-ons whose plugins are gone.
func (p *patient) formerConflists() {
	if p.HasPlugin == nil {
		return
	}
	first := true
	for _, c := range p.conflists() {
		if p.OfAnother != nil {
			if program := p.OfAnother(c.file); program != "" {
				p.add("cni-configuration", Info, "set networkPlugin to cni if pods are to use it",
					"the CNI configuration %s is %s's own: pods do not use it", c.file, program)
				continue
			}
		}
		if c.broken != nil && p.Alone {
			p.add("cni-configuration", Warning, "repair "+c.file+", or remove it",
				"the CNI configuration cannot be used: pods get the network of the next one in %s, or the built-in network: %v",
				p.CNIConfDir, c.broken)
		} else if c.broken != nil && first {
			p.add("cni-configuration", Error, "repair "+c.file+", or remove it",
				"the CNI configuration cannot be used, and no pod gets a network: %v", c.broken)
		}
		first = false
		for _, t := range c.types() {
			if t != "" && !p.HasPlugin(t) && p.Alone {
				p.add("former-conflist", Warning, "install the plugin (its directory belongs into cniBinDirs), or remove "+c.file,
					"the CNI configuration %s wants the plugin %s, which is nowhere: until it is there, pods get the network of the next "+
						"configuration, or the built-in network", c.file, t)
				break
			}
			if t != "" && !p.HasPlugin(t) {
				p.add("former-conflist", Error, "install the add-on's plugin, or if the add-on is gone, remove "+c.file,
					"the CNI configuration %s wants the plugin %s, which is nowhere: no pod gets a network", c.file, t)
				break
			}
		}
	}
}

// formerShims looks for containers of another runtime, which outlive it.
func (p *patient) formerShims(running []process) {
	var shims, runtimes int
	for _, proc := range running {
		switch proc.name {
		case "containerd-shim", "conmon": // of containerd-shim-runc-v2 a name has 15 characters
			shims++
		case "containerd", "dockerd", "crio", "k3s", "k3s-agent", "k3s-server", "rke2", "podman":
			runtimes++
		}
	}
	if shims > 0 && runtimes == 0 {
		p.add("former-containers", Warning, "stop them: k3s-killall.sh, or reboot",
			"%d containers' shims run here without the runtime that started them: they keep ports, addresses and memory", shims)
	}
}

// formerRules looks for rules of a service proxy or of CNI plugins. Removing them is
// left to a person: other runtimes' containers may be behind them.
func (p *patient) formerRules(running []process) {
	if slices.ContainsFunc(running, func(q process) bool { return slices.Contains(nodePrograms, q.name) }) || p.agent {
		return
	}
	nft, err := p.sys.Find("nft")
	if err != nil {
		return
	}
	out, err := p.sys.Output(context.Background(), nft, "list", "chains")
	if err != nil {
		return
	}
	count, first := 0, ""
	for line := range strings.SplitSeq(out, "\n") {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "chain ")
		if name, _, _ = strings.Cut(name, " "); ok && (strings.HasPrefix(name, "KUBE-") || strings.HasPrefix(name, "CNI-") ||
			strings.HasPrefix(name, "FLANNEL-")) {
			count++
			if first == "" {
				first = name
			}
		}
	}
	if count > 0 {
		p.add("former-rules", Warning, "reboot; or: iptables-save | grep -vE 'KUBE-|CNI-|FLANNEL-' | iptables-restore (and ip6tables)",
			"%d chains of a service proxy or of CNI plugins are in the firewall, such as %s, and nothing that keeps them runs: they "+
				"may catch host ports and services", count, first)
	}
}

// formerFiles looks for other nodes that are installed, or start at boot.
func (p *patient) formerFiles() {
	for _, unit := range []string{"k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0sworker", "k0scontroller", "edgecore",
		"snap.microk8s.daemon-kubelite"} {
		if p.exists("etc/systemd/system/multi-user.target.wants/" + unit + ".service") {
			p.add("former-unit", Warning, "systemctl disable --now "+unit,
				"%s.service starts at boot: it is a node too, and uses the same cgroups, ports and networks", unit)
		}
	}
	for dir, what := range map[string]string{
		"var/lib/rancher/k3s":  "k3s (k3s-uninstall.sh or k3s-agent-uninstall.sh removes it)",
		"var/lib/rancher/rke2": "rke2 (rke2-uninstall.sh removes it)",
		"var/lib/k0s":          "k0s (k0s reset removes it)", "var/snap/microk8s": "microk8s (snap remove microk8s)",
	} {
		if list, err := fs.ReadDir(p.Host, dir); err == nil && len(list) > 0 {
			p.add("former-files", Info, "nothing, unless its disk space is wanted", "/%s holds the files of %s", dir, what)
		}
	}
	for port, who := range map[int]string{6443: "an API server", 2379: "etcd"} {
		if !p.agent && p.listening(port) {
			p.add("former-port", Info, fmt.Sprintf("if it is nobody's any more: ss -ltnp sport = :%d says whose", port),
				"%s listens on TCP port %d", who, port)
		}
	}
}
