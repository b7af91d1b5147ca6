package bridge

import (
	"fmt"
	"net/netip"

	"github.com/islet-edge/islet/net/netns"
	"github.com/vishvananda/netlink"
)

// An Interface describes one network interface of the node.
type Interface struct {
	Name      string
	Index     int
	Kind      string // bridge, vxlan, dummy, veth ...
	Addresses []netip.Prefix
	Users     int  // the number of its ports and child interfaces
	Port      bool // true if the interface is a port of another interface
}

// ListInterfaces lists the interfaces of a namespace. It changes nothing.
func ListInterfaces(ns netns.NS) ([]Interface, error) {
	h, err := ns.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return listInterfaces(h)
}

func listInterfaces(h *netlink.Handle) ([]Interface, error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	users := map[int]int{}
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex != 0 {
			users[a.MasterIndex]++
		}
		if a.ParentIndex != 0 && l.Type() != "veth" { // the parent of a veth is its other end
			users[a.ParentIndex]++
		}
	}
	var out []Interface
	for _, l := range links {
		a := l.Attrs()
		i := Interface{Name: a.Name, Index: a.Index, Kind: l.Type(), Users: users[a.Index], Port: a.MasterIndex != 0}
		for _, addr := range addrs {
			if p, ok := prefixOf(addr.IPNet); ok && addr.LinkIndex == a.Index && !p.Addr().IsLinkLocalUnicast() {
				i.Addresses = append(i.Addresses, p)
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// RemoveUnused removes an interface that ListInterfaces has returned. It returns an error if the name now belongs to an interface with
// another index. It also returns an error if the interface is in use: it has ports or child interfaces, or it is a port itself.
func RemoveUnused(ns netns.NS, name string, index int) error {
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	all, err := listInterfaces(h)
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Index != index || i.Name != name {
			continue
		}
		if i.Users > 0 || i.Port {
			return fmt.Errorf("interface %s is in use: %d interfaces are on it", name, i.Users)
		}
		link, err := h.LinkByIndex(index)
		if err == nil {
			err = h.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("remove interface %s: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("interface %s has been replaced by another one of the same name", name)
}
