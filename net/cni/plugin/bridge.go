package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

func bridgeActions() pluginActions {
	return pluginActions{
		fields: "bridge isGateway isDefaultGateway forceAddress ipMasq ipMasqBackend mtu hairpinMode promiscMode enabledad portIsolation",
		add:    bridgeAdd, del: bridgeDel, check: bridgeCheck, gc: bridgeGC, status: bridgeStatus,
	}
}

// bridgeConf contains the configuration of the plugin type bridge.
type bridgeConf struct {
	Bridge           string `json:"bridge"`
	IsGateway        bool   `json:"isGateway"`
	IsDefaultGateway bool   `json:"isDefaultGateway"`
	ForceAddress     bool   `json:"forceAddress"`
	IPMasq           bool   `json:"ipMasq"`
	MTU              int    `json:"mtu"`
	Hairpin          bool   `json:"hairpinMode"`
	Promisc          bool   `json:"promiscMode"`
	DAD              bool   `json:"enabledad"`
	Isolation        bool   `json:"portIsolation"`
	Args             struct {
		CNI struct {
			MAC string `json:"mac"`
		} `json:"cni"`
	} `json:"args"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
	mac net.HardwareAddr
}

func (c *pluginCall) parseBridgeConf() (*bridgeConf, error) {
	b := &bridgeConf{Bridge: "cni0"}
	if err := json.Unmarshal(c.Args.StdinData, b); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "bridge: "+err.Error(), "")
	}
	if err := utils.ValidateInterfaceName(b.Bridge); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("bridge: name %q: %s", b.Bridge, err.Msg), "")
	}
	if b.MTU < 0 || b.MTU > 65535 {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("bridge: invalid mtu %d", b.MTU), "")
	}
	if b.Hairpin && b.Promisc {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "bridge: hairpinMode and promiscMode exclude each other", "")
	}
	b.IsGateway = b.IsGateway || b.IsDefaultGateway
	mac := b.Args.CNI.MAC
	if b.RuntimeConfig.MAC != "" {
		mac = b.RuntimeConfig.MAC
	}
	if mac == "" {
		return b, nil
	}
	var err error
	if b.mac, err = net.ParseMAC(mac); err != nil || len(b.mac) != 6 {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("bridge: %q is not an Ethernet address", mac), "")
	}
	return b, nil
}

// vethName returns the name of the veth end on the node. The name is derived from the request. The command DEL can therefore find it
// without the result of ADD.
func (c *pluginCall) vethName() string {
	l := c.label()
	return "veth" + l[len(l)-8:]
}

func bridgeAdd(ctx context.Context, c *pluginCall) (result *current.Result, err error) {
	b, err := c.parseBridgeConf()
	if err != nil {
		return nil, err
	}
	result = &current.Result{CNIVersion: current.ImplementedSpecVersion}
	if c.conf.IPAM.Type != "" {
		if result, err = c.ipamAdd(ctx); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, c.runIPAM(context.WithoutCancel(ctx), "DEL"))
			}
		}()
		if len(result.IPs) == 0 {
			return nil, errors.New("bridge: the IPAM plugin returned no address")
		}
	}
	port := bridge.Port{
		Host: c.vethName(), Interface: c.Args.IfName, MAC: b.mac, MTU: b.MTU,
		Hairpin: b.Hairpin, Isolated: b.Isolation, DAD: b.DAD,
	}
	gateways, err := b.setGateways(result, &port)
	if err != nil {
		return nil, err
	}
	if port.Bridge, err = b.ensureBridge(c.Host, gateways); err != nil {
		return nil, err
	}
	if len(port.MAC) == 0 && len(port.Addresses) > 0 {
		port.MAC = bridge.MAC(port.Addresses[0].Addr())
	}
	if err := bridge.Attach(c.Host, netns.At(c.Args.Netns), port); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bridge.Detach(c.Host, port.Host))
		}
	}()
	if b.IPMasq {
		if err := nft.Update(c.Host, tableName, func(t *nft.Table) { c.addMasquerade(t, port.Addresses) }); err != nil {
			return nil, err
		}
	}
	return result, c.addInterfaces(result, port)
}

// setGateways sets gateways that the IPAM plugin has not set, and returns the addresses that the bridge needs.
func (b *bridgeConf) setGateways(result *current.Result, port *bridge.Port) ([]netip.Prefix, error) {
	var onBridge []netip.Prefix
	gateway := map[bool]netip.Addr{} // by family; true is IPv4
	for _, ip := range result.IPs {
		p, err := prefixOf(ip.Address)
		if err != nil {
			return nil, err
		}
		port.Addresses = append(port.Addresses, p)
		gw, ok := netip.AddrFromSlice(ip.Gateway)
		gw = gw.Unmap()
		if !ok && b.IsGateway {
			gw = p.Masked().Addr().Next()
			ip.Gateway = gw.AsSlice()
		}
		if !gw.IsValid() {
			continue
		}
		if _, found := gateway[gw.Is4()]; !found {
			gateway[gw.Is4()] = gw
		}
		if b.IsGateway {
			onBridge = append(onBridge, netip.PrefixFrom(gw, p.Bits()))
		}
		if b.IsDefaultGateway && gateway[gw.Is4()] == gw {
			everywhere, _ := gw.Prefix(0)
			dst := net.IPNet{IP: everywhere.Addr().AsSlice(), Mask: net.CIDRMask(0, gw.BitLen())}
			result.Routes = append(result.Routes, &types.Route{Dst: dst, GW: gw.AsSlice()})
		}
	}
	for _, r := range result.Routes {
		dst, err := prefixOf(r.Dst)
		if err != nil {
			return nil, err
		}
		gw, ok := netip.AddrFromSlice(r.GW)
		gw = gw.Unmap()
		if !ok {
			gw = gateway[dst.Addr().Is4()]
		}
		port.Routes = append(port.Routes, bridge.Route{Dst: dst, Gateway: gw})
	}
	return onBridge, nil
}

// ensureBridge creates the bridge and adds its addresses. It is an error if the bridge has another address in the same network. With
// forceAddress, that address is removed instead.
func (b *bridgeConf) ensureBridge(host netns.NS, gateways []netip.Prefix) (link bridge.Link, err error) {
	var conflict error
	c := bridge.Config{Name: b.Bridge, Addresses: gateways, MTU: b.MTU, Promisc: b.Promisc}
	c.Foreign = func(p netip.Prefix) bool {
		for _, g := range gateways {
			if p.Overlaps(g) && !b.ForceAddress {
				conflict = fmt.Errorf("bridge %s has the address %s, which is not %s (forceAddress would remove it)", b.Bridge, p, g)
			} else if p.Overlaps(g) {
				return true
			}
		}
		return false
	}
	if link, err = bridge.Ensure(host, c); err != nil {
		return nil, err
	}
	if conflict != nil {
		return nil, conflict
	}
	var ipv4, ipv6 bool
	for _, g := range gateways {
		ipv4, ipv6 = ipv4 || g.Addr().Is4(), ipv6 || g.Addr().Is6()
	}
	return link, bridge.Forward(host, ipv4, ipv6)
}

func (c *pluginCall) addMasquerade(t *nft.Table, addresses []netip.Prefix) {
	t.RemoveOwners(c.isOwn)
	for _, a := range addresses {
		t.Masquerade = append(t.Masquerade, nft.Source{Owner: c.label(), Prefix: netip.PrefixFrom(a.Addr(), a.Addr().BitLen())})
		t.Local = append(t.Local, a.Masked())
	}
}

// addInterfaces adds the bridge and both ends of the veth pair to the result.
func (c *pluginCall) addInterfaces(result *current.Result, port bridge.Port) error {
	h, err := c.Host.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	end, err := h.LinkByName(port.Host)
	if err != nil {
		return err
	}
	in, err := netns.At(c.Args.Netns).Netlink()
	if err != nil {
		return err
	}
	defer in.Close()
	link, err := in.LinkByName(port.Interface)
	if err != nil {
		return err
	}
	br := port.Bridge.Attrs()
	result.Interfaces = []*current.Interface{
		{Name: br.Name, Mac: br.HardwareAddr.String(), Mtu: br.MTU},
		{Name: port.Host, Mac: end.Attrs().HardwareAddr.String(), Mtu: end.Attrs().MTU},
		{Name: port.Interface, Mac: link.Attrs().HardwareAddr.String(), Mtu: link.Attrs().MTU, Sandbox: c.Args.Netns},
	}
	for _, ip := range result.IPs {
		at := 2
		ip.Interface = &at
	}
	if len(c.conf.DNS.Nameservers)+len(c.conf.DNS.Search)+len(c.conf.DNS.Options)+len(c.conf.DNS.Domain) > 0 {
		result.DNS = c.conf.DNS
	}
	return nil
}

func bridgeDel(ctx context.Context, c *pluginCall) error {
	b, err := c.parseBridgeConf()
	if err != nil {
		return err
	}
	if c.conf.IPAM.Type != "" {
		if err := c.runIPAM(ctx, "DEL"); err != nil {
			return err
		}
	}
	if err := bridge.Detach(c.Host, c.vethName()); err != nil {
		return err
	}
	if c.Args.Netns != "" { // if another implementation has created the pair, its end on the node has another name
		if err := bridge.Detach(netns.At(c.Args.Netns), c.Args.IfName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !b.IPMasq {
		return nil
	}
	return nft.Update(c.Host, tableName, func(t *nft.Table) { t.RemoveOwners(c.isOwn) })
}

func bridgeCheck(ctx context.Context, c *pluginCall) error {
	b, err := c.parseBridgeConf()
	if err != nil {
		return err
	}
	previous, err := c.previousResult()
	if err != nil {
		return err
	}
	if previous == nil {
		return errors.New("bridge: CHECK needs prevResult")
	}
	if c.conf.IPAM.Type != "" {
		if err := c.runIPAM(ctx, "CHECK"); err != nil {
			return err
		}
	}
	port := bridge.Port{Host: c.vethName(), Interface: c.Args.IfName}
	for _, ip := range previous.IPs {
		p, err := prefixOf(ip.Address)
		if err != nil {
			return err
		}
		port.Addresses = append(port.Addresses, p)
	}
	if port.Bridge, err = bridge.Find(c.Host, b.Bridge); err != nil {
		return err
	}
	right, err := bridge.IsAttached(c.Host, netns.At(c.Args.Netns), port)
	if err != nil {
		return err
	}
	if !right {
		return fmt.Errorf("bridge: %s of the container is not connected to %s with the addresses %v",
			c.Args.IfName, b.Bridge, port.Addresses)
	}
	return nil
}

func bridgeGC(ctx context.Context, c *pluginCall) error {
	if c.conf.IPAM.Type != "" {
		if err := c.runIPAM(ctx, "GC"); err != nil {
			return err
		}
	}
	return nft.Update(c.Host, tableName, func(t *nft.Table) { t.RemoveOwners(c.staleLabels()) })
}

func bridgeStatus(ctx context.Context, c *pluginCall) error {
	if c.conf.IPAM.Type == "" {
		return nil
	}
	return c.runIPAM(ctx, "STATUS")
}

func prefixOf(n net.IPNet) (netip.Prefix, error) {
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	addr = addr.Unmap()
	if !ok || bits != addr.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%s is not an address with a prefix length", n.String())
	}
	return netip.PrefixFrom(addr, ones), nil
}
