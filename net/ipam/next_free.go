package ipam

import (
	"fmt"
	"net/netip"
)

// addrRange is the part of a prefix that is assigned to pods: all addresses except the network address, the gateway (the first address)
// and, for IPv4, the broadcast address.
type addrRange struct {
	prefix     netip.Prefix
	first, end netip.Addr // inclusive
	last       netip.Addr // the last assigned address; the search for a free address starts after it
}

func newRange(p netip.Prefix) (*addrRange, error) {
	if !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
		return nil, fmt.Errorf("pod CIDR %q is not a valid prefix", p)
	}
	p = p.Masked()
	if p.Bits() > p.Addr().BitLen()-2 {
		return nil, fmt.Errorf("pod CIDR %s is too small: it needs room for network, gateway and pods, so at most /%d",
			p, p.Addr().BitLen()-2)
	}
	r := &addrRange{prefix: p, first: Gateway(p).Next(), end: lastOf(p)}
	if p.Addr().Is4() {
		r.end = r.end.Prev()
	}
	return r, nil
}

// Gateway returns the node's address in a pod network, which is the first address of the network.
func Gateway(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

func (r *addrRange) contains(addr netip.Addr) bool {
	return r.prefix.Contains(addr) && !addr.Less(r.first) && !r.end.Less(addr)
}

// nextFree returns the next free address in cyclic order.
func (r *addrRange) nextFree(taken map[netip.Addr]string) (netip.Addr, bool) {
	addr := r.nextAddress(r.last)
	for start := addr; ; {
		if _, used := taken[addr]; !used {
			r.last = addr
			return addr, true
		}
		if addr = r.nextAddress(addr); addr == start {
			return netip.Addr{}, false
		}
	}
}

func (r *addrRange) nextAddress(addr netip.Addr) netip.Addr {
	if !addr.IsValid() || !addr.Less(r.end) {
		return r.first
	}
	return addr.Next()
}

// size returns the number of addresses of a range. It counts the addresses in a loop. This is fast enough, because only ranges without free
// addresses are counted, and such ranges are small.
func (r *addrRange) size() int {
	n := 1
	for addr := r.first; addr.Less(r.end); addr = addr.Next() {
		n++
	}
	return n
}
