package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
	"github.com/islet-edge/islet/net/portmap"
)

func portmapActions() pluginActions {
	return pluginActions{fields: "snat backend markMasqBit", add: portmapAdd, del: portmapDel, check: portmapCheck, gc: portmapGC}
}

func (c *pluginCall) parseMappings() ([]portmap.Mapping, error) {
	var conf struct {
		SNAT          *bool `json:"snat"`
		MarkMasqBit   *int  `json:"markMasqBit"`
		RuntimeConfig struct {
			PortMappings []portmap.Mapping `json:"portMappings"`
		} `json:"runtimeConfig"`
	}
	if err := json.Unmarshal(c.Args.StdinData, &conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "portmap: "+err.Error(), "")
	}
	if conf.SNAT != nil && !*conf.SNAT {
		return nil, types.NewError(types.ErrUnsupportedField, "portmap: snat can only be true with the built-in plugin", "")
	}
	if conf.MarkMasqBit != nil && *conf.MarkMasqBit != 13 {
		return nil, types.NewError(types.ErrUnsupportedField, "portmap: markMasqBit can only be 13 with the built-in plugin", "")
	}
	return conf.RuntimeConfig.PortMappings, nil
}

// hostPorts returns the host ports for the requested mappings. Connections to a host port are forwarded to the pod's addresses, which are
// in the result of the previous plugin.
func (c *pluginCall) hostPorts(result *current.Result) (ports []nft.Port, networks []netip.Prefix, err error) {
	mappings, err := c.parseMappings()
	if err != nil || len(mappings) == 0 {
		return nil, nil, err
	}
	var addrs []netip.Addr
	for _, ip := range result.IPs {
		if at := ip.Interface; at != nil && (*at < 0 || *at >= len(result.Interfaces) || result.Interfaces[*at].Sandbox == "") {
			continue
		}
		p, err := prefixOf(ip.Address)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() }) {
			continue // only the first address of each family
		}
		addrs, networks = append(addrs, p.Addr()), append(networks, p.Masked())
	}
	ports, err = portmap.Ports(c.label(), mappings, addrs)
	return ports, networks, err
}

func portmapAdd(ctx context.Context, c *pluginCall) (*current.Result, error) {
	previous, err := c.previousResult()
	if err != nil {
		return nil, err
	}
	if previous == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "portmap: must be chained behind another plugin", "")
	}
	ports, networks, err := c.hostPorts(previous)
	if err != nil || len(ports) == 0 {
		return previous, err
	}
	var taken error
	err = nft.Update(c.Host, tableName, func(t *nft.Table) {
		t.RemoveOwners(c.isOwn)
		taken = portmap.Conflict(ports, t.Ports)
		if taken == nil {
			t.Ports = append(t.Ports, ports...)
			t.Local = append(t.Local, networks...)
		}
	})
	if err := errors.Join(err, taken); err != nil {
		return nil, err
	}
	if err := setLocalnet(c.Host, ports); err != nil { // only after the rule of the chain guard is in the kernel
		return nil, err
	}
	return previous, portmap.ForgetFlows(c.Host, ports)
}

// setLocalnet makes host ports usable at 127.0.0.1. For this purpose it sets route_localnet on the node's interfaces to the pods.
func setLocalnet(host netns.NS, ports []nft.Port) error {
	names, err := podInterfaces(host, ports)
	if err != nil {
		return err
	}
	for name := range names {
		if err := portmap.SetLocalnet(host, name, true); err != nil {
			return err
		}
	}
	return nil
}

// clearLocalnet clears route_localnet on the node's interfaces to the pods whose ports were removed. It skips an interface if a remaining
// port needs route_localnet there.
func clearLocalnet(host netns.NS, removed, remaining []nft.Port) error {
	names, err := podInterfaces(host, removed)
	if err != nil || len(names) == 0 {
		return nil // without a route, the interface does not exist
	}
	others, err := podInterfaces(host, remaining)
	if err != nil {
		return nil // the interface may belong to a remaining pod
	}
	for name := range names {
		if !others[name] {
			if err := portmap.SetLocalnet(host, name, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// podInterfaces returns the names of the node's interfaces to pods. It considers only ports that need route_localnet.
func podInterfaces(host netns.NS, ports []nft.Port) (map[string]bool, error) {
	h, err := host.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	seen, names := map[netip.Addr]bool{}, map[string]bool{}
	for _, p := range ports {
		a := p.To.Addr()
		if seen[a] || !portmap.NeedsLocalnet([]nft.Port{p}) {
			continue
		}
		seen[a] = true
		routes, err := h.RouteGet(a.AsSlice())
		if err != nil || len(routes) == 0 {
			return nil, fmt.Errorf("portmap: no route to %s: %w", a, err)
		}
		if routes[0].Gw != nil { // the route has a gateway, so the interface does not belong to a pod
			continue
		}
		link, err := h.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("portmap: interface to %s: %w", a, err)
		}
		names[link.Attrs().Name] = true
	}
	return names, nil
}

func portmapDel(ctx context.Context, c *pluginCall) error {
	mappings, err := c.parseMappings()
	if err != nil || len(mappings) == 0 {
		return err
	}
	var ports []nft.Port
	var kept error
	err = nft.Update(c.Host, tableName, func(t *nft.Table) {
		for _, p := range t.Ports {
			if c.isOwn(p.Owner) {
				ports = append(ports, p)
			}
		}
		// Remove only the ports. DEL of the type bridge removes the other entries of this attachment.
		t.Ports = slices.DeleteFunc(t.Ports, func(p nft.Port) bool { return c.isOwn(p.Owner) })
		kept = clearLocalnet(c.Host, ports, t.Ports) // before the rule of the chain guard may be removed
	})
	if err := errors.Join(err, kept); err != nil {
		return err
	}
	return portmap.ForgetFlows(c.Host, ports)
}

func portmapCheck(ctx context.Context, c *pluginCall) error {
	previous, err := c.previousResult()
	if err != nil {
		return err
	}
	if previous == nil {
		return errors.New("portmap: CHECK needs prevResult")
	}
	ports, _, err := c.hostPorts(previous)
	if err != nil {
		return err
	}
	t, err := nft.Load(c.Host, tableName)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if !slices.Contains(t.Ports, p) {
			return fmt.Errorf("portmap: host port %d is not open", p.HostPort)
		}
	}
	return nil
}

func portmapGC(ctx context.Context, c *pluginCall) error {
	stale := c.staleLabels()
	return nft.Update(c.Host, tableName, func(t *nft.Table) {
		t.Ports = slices.DeleteFunc(t.Ports, func(p nft.Port) bool { return stale(p.Owner) })
	})
}
