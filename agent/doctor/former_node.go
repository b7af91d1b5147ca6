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
	Users     int  // number of interfaces that are ports of this one, or are stacked on it
	Port      bool // set if this interface is a port of another interface
}

// nodeInterfaces are the interfaces that the pod networks and service proxies of other kubelets create. The keys
// are names, the values are the kinds of the interfaces. Findings about other interfaces have no remedy. A bridge
// with another name may have been created by an administrator, or belong to virtual machines that are switched
// off.
var nodeInterfaces = map[string]string{
	"cni0": "bridge", "cbr0": "bridge", "kube-bridge": "bridge", "flannel.1": "vxlan", "flannel-v6.1": "vxlan",
	"kube-ipvs0": "dummy", "kube-dummy-if": "dummy", "nodelocaldns": "dummy",
}

// nodePrograms are the programs that own the interfaces in nodeInterfaces while the programs are running. Some of
// these programs, such as kube-proxy and add-ons, run in pods.
var nodePrograms = []string{
	"kubelet", "k3s", "k3s-agent", "k3s-server", "k0s", "rke2", "kubelite", "edgecore", "crio",
	"flanneld", "kube-proxy", "kube-router", "kindnetd", "cilium-agent", "calico-node", "node-cache",
}

// endContainers is the advice to end containers of a former node. It names no script of k3s or another program, because such a script also
// unmounts and deletes the volumes below /var/lib/kubelet, which may belong to islet's pods.
const (
	endContainers = "disable the service that starts them, and reboot; " + keepVolumes
	keepVolumes   = "a script of the former program may delete volumes of islet's pods"
)

// formerNode reports leftovers of another kubelet or of k3s that interfere with pods.
func (p *checkup) formerNode(context.Context) {
	running := p.listProcesses()
	before := len(p.findings)
	p.formerInterfaces(running)
	p.formerShims(running)
	p.formerConflists()
	p.formerRules(running)
	p.formerFiles()
	if len(p.findings) == before {
		p.add("former-node", OK, "", "there are no leftovers of another kubelet or k3s")
	}
}

func (p *checkup) formerInterfaces(running []process) {
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
		if slices.Contains(nodePrograms, proc.name) && !proc.sameProgram {
			owner = fmt.Sprintf("%s (process %d)", proc.name, proc.pid)
		}
	}
	for _, i := range list {
		kind, known := nodeInterfaces[i.Name]
		clash := p.hasConflict(i)
		if i.Name == p.Bridge || slices.Contains(p.Bridges, i.Name) || !(known && i.Kind == kind) && !(clash && i.Kind == "bridge") {
			continue
		}
		whose := owner
		if whose == "" && p.mayBeConfigured(i.Name) {
			whose = "a CNI configuration in " + p.CNIConfDir
		}
		p.formerInterface(i, clash, whose)
	}
}

// formerInterface reports an interface of another node. If clash is true, the interface has addresses of the pod
// network. The parameter owner describes the program or the configuration that uses the interface. It is "" if no
// such user is known. In that case the finding has a remedy, unless another interface uses this interface.
func (p *checkup) formerInterface(i Interface, clash bool, owner string) {
	severity, what := Info, fmt.Sprintf("there is a %s %s %v, as the network of another kubelet creates it", i.Kind, i.Name, i.Addresses)
	if clash {
		severity = Error
		what = fmt.Sprintf("the %s %s has addresses of the pod network (%v): no pod on the built-in network can start", i.Kind, i.Name,
			i.Addresses)
	}
	switch {
	case owner != "" && clash:
		p.add("former-interface", severity, "it is in use by "+owner+": stop that, or choose another podCIDR", "%s", what)
	case owner != "":
		return // the interface is in use and does not interfere with pods
	case i.Users > 0 || i.Port:
		p.add("former-interface", severity, fmt.Sprintf("%d interfaces are attached to it (ip link show master %s): %s", i.Users, i.Name,
			endContainers), "%s", what)
	case nodeInterfaces[i.Name] != i.Kind:
		p.add("former-interface", severity, fmt.Sprintf("ip link delete %s if it is not used; else choose another podCIDR", i.Name),
			"%s", what)
	default:
		p.add("former-interface", severity, fmt.Sprintf("it is not in use: run islet doctor --fix, or ip link delete %s", i.Name),
			"%s", what)
		p.setRemedy("interface "+i.Name, func() error { return p.RemoveInterface(i.Name, i.Index) })
	}
}

// hasConflict reports whether an interface has addresses that the built-in network needs.
func (p *checkup) hasConflict(i Interface) bool {
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

// A conflist is a CNI configuration file.
type conflist struct {
	file    string
	Type    string
	Plugins []struct{ Type string }
	text    string
	broken  error // why the file is invalid; nil if it is valid
}

// readConflists reads the files of the CNI directory.
func (p *checkup) readConflists() (out []conflist) {
	for _, name := range p.entries(p.CNIConfDir) {
		if ext := path.Ext(name); ext != ".conf" && ext != ".conflist" && ext != ".json" {
			continue
		}
		c := conflist{file: path.Join(p.CNIConfDir, name)}
		c.text = p.readText(c.file)
		if p.BrokenCNI != nil {
			c.broken = p.BrokenCNI(c.file)
		}
		if json.Unmarshal([]byte(c.text), &c) == nil || c.broken != nil {
			out = append(out, c)
		}
	}
	return out
}

func (c conflist) pluginTypes() (out []string) {
	if c.Type != "" {
		out = append(out, c.Type)
	}
	for _, p := range c.Plugins {
		out = append(out, p.Type)
	}
	return out
}

// mayBeConfigured reports whether a CNI configuration may create the interface with the given name. It returns true if
// the configuration contains this name, or if the name is a default of the configuration's plugin.
func (p *checkup) mayBeConfigured(name string) bool {
	return slices.ContainsFunc(p.readConflists(), func(c conflist) bool {
		for _, t := range c.pluginTypes() {
			if t == "flannel" || t == "bridge" && name == "cni0" && !strings.Contains(c.text, `"bridge":`) {
				return true
			}
		}
		return strings.Contains(c.text, `"`+name+`"`)
	})
}

// usesBuiltInNetwork reports whether pods use the built-in network because each CNI configuration is invalid or requires
// a plugin that is missing.
func (p *checkup) usesBuiltInNetwork() bool {
	if p.HasPlugin == nil || !p.Standalone {
		return false
	}
	for _, c := range p.readConflists() {
		missing := func(t string) bool { return t != "" && !p.HasPlugin(t) }
		if (p.OfAnother == nil || p.OfAnother(c.file) == "") && c.broken == nil && !slices.ContainsFunc(c.pluginTypes(), missing) {
			return false
		}
	}
	return true
}

// formerConflists reports CNI configurations that are invalid, and configurations of add-ons whose plugins were
// removed.
func (p *checkup) formerConflists() {
	if p.HasPlugin == nil {
		return
	}
	first := true
	for _, c := range p.readConflists() {
		if p.OfAnother != nil {
			if program := p.OfAnother(c.file); program != "" {
				p.add("cni-configuration", Info, "set networkPlugin to cni if pods are to use it",
					"the CNI configuration %s belongs to %s: pods do not use it", c.file, program)
				continue
			}
		}
		if c.broken != nil && p.Standalone {
			p.add("cni-configuration", Warning, "repair "+c.file+", or remove it",
				"the CNI configuration cannot be used: pods get the network of the next one in %s, or the built-in network: %v",
				p.CNIConfDir, c.broken)
		} else if c.broken != nil && first {
			p.add("cni-configuration", Error, "repair "+c.file+", or remove it",
				"the CNI configuration cannot be used, and no pod gets a network: %v", c.broken)
		}
		first = false
		for _, t := range c.pluginTypes() {
			if t != "" && !p.HasPlugin(t) && p.Standalone {
				p.add("former-conflist", Warning, "install the plugin in a directory of cniBinDirs, or remove "+c.file,
					"the plugin %[2]s of the CNI configuration %[1]s is not installed: until it is, pods get the network of the next "+
						"configuration, or the built-in network", c.file, t)
				break
			}
			if t != "" && !p.HasPlugin(t) {
				p.add("former-conflist", Error, "install the add-on's plugin, or remove "+c.file+" if the add-on was removed",
					"the plugin %[2]s of the CNI configuration %[1]s is not installed: no pod gets a network", c.file, t)
				break
			}
		}
	}
}

// formerShims reports shims of another runtime that has ended. The containers of these shims are
// still running.
func (p *checkup) formerShims(running []process) {
	var shims, runtimes int
	for _, proc := range running {
		switch proc.name {
		case "containerd-shim", "conmon": // comm contains only the first 15 characters of containerd-shim-runc-v2
			shims++
		case "containerd", "dockerd", "crio", "k3s", "k3s-agent", "k3s-server", "rke2", "podman":
			runtimes++
		}
	}
	if shims > 0 && runtimes == 0 {
		p.add("former-containers", Warning, endContainers,
			"%d shims of containers are running, but the runtime that started them is not: they occupy ports, addresses and memory", shims)
	}
}

// formerRules reports firewall rules of a service proxy or of CNI plugins. The finding has no remedy, because
// containers of other runtimes may need the rules.
func (p *checkup) formerRules(running []process) {
	if slices.ContainsFunc(running, func(q process) bool { return slices.Contains(nodePrograms, q.name) }) || p.agentRuns {
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
			"the firewall has %d chains of a service proxy or of CNI plugins, such as %s, but no program that maintains them is running: "+
				"they may redirect host ports and services", count, first)
	}
}

// formerFiles reports other kinds of nodes that are installed or that start at boot.
func (p *checkup) formerFiles() {
	for _, unit := range []string{"k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0sworker", "k0scontroller", "edgecore",
		"snap.microk8s.daemon-kubelite"} {
		if p.exists("etc/systemd/system/multi-user.target.wants/" + unit + ".service") {
			p.add("former-unit", Warning, "systemctl disable --now "+unit,
				"%s.service starts at boot: it is another kubelet, and uses the same cgroups, ports and networks", unit)
		}
	}
	// The images in a data directory may be removed. Pods of islet may use other parts, such as the directory storage of k3s.
	for _, of := range []struct{ program, dir, images string }{
		{"k3s", "var/lib/rancher/k3s", "agent/containerd"}, {"rke2", "var/lib/rancher/rke2", "agent/containerd"},
		{"k0s", "var/lib/k0s", "containerd"}, {"microk8s", "var/snap/microk8s", "common/var/lib/containerd"},
	} {
		if list, err := fs.ReadDir(p.Host, of.dir); err == nil && len(list) > 0 {
			p.add("former-files", Info, fmt.Sprintf("nothing; if you need the disk space, do not go back and none of its containers runs, "+
				"remove /%s/%s, but not the volumes beside it. A script of %s that removes it may also delete volumes of islet's pods",
				of.dir, of.images, of.program), "/%s contains files of %s", of.dir, of.program)
		}
	}
	for port, who := range map[int]string{6443: "an API server", 2379: "etcd"} {
		if !p.agentRuns && p.isListening(port) {
			p.add("former-port", Info, fmt.Sprintf("stop it if it is not used any more; ss -ltnp sport = :%d shows the process", port),
				"%s listens on TCP port %d", who, port)
		}
	}
}
