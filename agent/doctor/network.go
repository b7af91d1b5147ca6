package doctor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// resolvedUpstream is the file in which systemd-resolved lists its upstream DNS servers.
const resolvedUpstream = "/run/systemd/resolve/resolv.conf"

// checkForwarding checks that packets of pods are forwarded.
func (p *checkup) checkForwarding(ctx context.Context) {
	if p.ForeignNetwork {
		p.add("network", Info, "nothing: the CNI plugins create the network", "a CNI configuration replaces the built-in network")
		if p.readText("proc/sys/net/ipv4/ip_forward") == "0" {
			p.add("ip-forward", Warning, "sysctl -w net.ipv4.ip_forward=1, and put it into /etc/sysctl.d, unless the network's agent does",
				"net.ipv4.ip_forward is 0: pods cannot reach other hosts")
		}
	}
	switch drops := p.forwardDrops(ctx); {
	case drops:
		p.add("forward-drop", Warning, fmt.Sprintf("allow the bridge: iptables -I FORWARD -i %[1]s -j ACCEPT; iptables -I FORWARD "+
			"-o %[1]s -j ACCEPT", p.Bridge), "the firewall drops forwarded packets (policy of chain FORWARD): pods cannot reach "+
			"other hosts")
	case p.exists("sys/class/net/docker0"):
		p.add("forward-drop", Info, "if pods cannot reach other hosts: iptables -P FORWARD ACCEPT, or allow "+p.Bridge+
			" in chain DOCKER-USER", "Docker is installed, which usually sets the policy of chain FORWARD to DROP")
	case p.exists("run/firewalld") || p.exists("var/lib/ufw/user.rules") && strings.Contains(p.readText("etc/ufw/ufw.conf"), "ENABLED=yes"):
		p.add("forward-drop", Info, fmt.Sprintf("allow it to forward packets of %[1]s (ufw: ufw route allow in on %[1]s; firewalld: put "+
			"%[1]s into the trusted zone)", p.Bridge), "a firewall (ufw or firewalld) is active")
	default:
		p.add("forward-drop", OK, "", "no firewall that drops forwarded packets was found")
	}
}

// forwardDrops reports whether the policy of the chain FORWARD is to drop packets. It runs nft, because iptables would
// load kernel modules.
func (p *checkup) forwardDrops(ctx context.Context) bool {
	nft, err := p.sys.Find("nft")
	if err != nil {
		return false
	}
	out, err := p.sys.Output(ctx, nft, "list", "chain", "ip", "filter", "FORWARD")
	return err == nil && strings.Contains(out, "policy drop")
}

// checkAddresses reports networks that overlap the pod network, so that the host can no longer reach them.
func (p *checkup) checkAddresses(context.Context) {
	if p.ForeignNetwork {
		return
	}
	clash := false
	for _, r := range p.readRoutes() {
		for _, cidr := range p.PodCIDRs {
			if r.device != p.Bridge && !slices.Contains(p.Bridges, r.device) && r.destination.Overlaps(cidr) {
				clash = true
				p.add("pod-network", Warning, "choose another podCIDR", "the pod network %s overlaps %s, which the host reaches by %s",
					cidr,
					r.destination, r.device)
			}
		}
	}
	if !clash {
		p.add("pod-network", OK, "", "the pod network overlaps no network of the host")
	}
}

type route struct {
	device      string
	destination netip.Prefix
}

// readRoutes returns the entries of the host's routing tables, except default routes.
func (p *checkup) readRoutes() []route {
	var list []route
	for line := range strings.SplitSeq(p.readText("proc/net/route"), "\n") {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		to, err1 := hex.DecodeString(f[1])
		mask, err2 := hex.DecodeString(f[7])
		if err1 != nil || err2 != nil || len(to) != 4 || len(mask) != 4 {
			continue
		}
		ones := bits.OnesCount32(binary.BigEndian.Uint32(mask))
		if ones > 0 {
			list = append(list, route{f[0], netip.PrefixFrom(netip.AddrFrom4([4]byte{to[3], to[2], to[1], to[0]}), ones)})
		}
	}
	for line := range strings.SplitSeq(p.readText("proc/net/ipv6_route"), "\n") {
		f := strings.Fields(line)
		if len(f) < 10 || f[9] == "lo" {
			continue
		}
		to, err1 := hex.DecodeString(f[0])
		ones, err2 := hex.DecodeString(f[1])
		if err1 != nil || err2 != nil || len(to) != 16 || len(ones) != 1 || ones[0] == 0 || ones[0] > 128 {
			continue
		}
		list = append(list, route{f[9], netip.PrefixFrom(netip.AddrFrom16([16]byte(to)), int(ones[0]))})
	}
	return list
}

// checkResolver checks the file from which the DNS configuration of pods is made.
func (p *checkup) checkResolver(context.Context) {
	if p.ResolvConf == "" {
		p.add("resolv-conf", Info, "set resolvConf if pods must resolve names outside the cluster",
			"pods get no DNS servers of the host (resolvConf is empty)")
		return
	}
	text := p.readText(p.ResolvConf)
	var servers, local []string
	for line := range strings.SplitSeq(text, "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			servers = append(servers, f[1])
			if a, err := netip.ParseAddr(f[1]); err == nil && a.IsLoopback() {
				local = append(local, f[1])
			}
		}
	}
	switch {
	case len(servers) == 0:
		p.add("resolv-conf", Warning, "add one, or set resolvConf to another file", "%s names no DNS server", p.ResolvConf)
	case len(servers) == 1 && local != nil && local[0] == "127.0.0.53" && p.exists(resolvedUpstream):
		p.add("resolv-conf", OK, "", "%s names systemd-resolved; pods get the servers behind it", p.ResolvConf)
	case len(local) == len(servers):
		p.add("resolv-conf", Warning, "set resolvConf to a file that names a server which pods can reach",
			"%s names %s, which in a pod is the address of the pod itself", p.ResolvConf, local[0])
	case len(servers) > 3:
		p.add("resolv-conf", Info, "remove some", "%s names %d DNS servers; only three are used", p.ResolvConf, len(servers))
	default:
		p.add("resolv-conf", OK, "", "%s names %s", p.ResolvConf, strings.Join(servers, ", "))
	}
}
