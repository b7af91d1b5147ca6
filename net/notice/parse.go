package notice

import (
	"bytes"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	sizeofNetconfmsg = 4 // with padding
	netconfIndex     = 1 // NETCONFA_IFINDEX
)

// parseRoute parses one route netlink message. It returns false for other kinds of messages and for truncated messages.
func parseRoute(kind uint16, data []byte) (_ Notice, ok bool) {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return parseLink(kind == unix.RTM_DELLINK, data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(data) < unix.SizeofIfAddrmsg {
			return Notice{}, false
		}
		return parseAddress(kind == unix.RTM_DELADDR, data), true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(data) < unix.SizeofRtMsg {
			return Notice{}, false
		}
		n := Notice{Kind: Route, Gone: kind == unix.RTM_DELROUTE, Default: data[1] == 0}
		eachAttribute(data[unix.SizeofRtMsg:], func(what uint16, value []byte) {
			if what == unix.RTA_OIF && len(value) == 4 {
				n.Index = int(nl.NativeEndian().Uint32(value))
			}
		})
		return n, true
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		n := Notice{Kind: Sysctl}
		eachAttribute(data[min(len(data), sizeofNetconfmsg):], func(what uint16, value []byte) {
			if what == netconfIndex && len(value) == 4 {
				n.Index = int(int32(nl.NativeEndian().Uint32(value)))
			}
		})
		return n, true
	}
	return Notice{}, false
}

// parseAddress parses a message with the header of an address. Of an interface with a peer, IFA_ADDRESS is the peer's address.
func parseAddress(gone bool, data []byte) Notice {
	n := Notice{Kind: Address, Gone: gone, Index: int(nl.NativeEndian().Uint32(data[4:]))}
	eachAttribute(data[unix.SizeofIfAddrmsg:], func(what uint16, value []byte) {
		if a, ok := netip.AddrFromSlice(value); ok && (what == unix.IFA_LOCAL || what == unix.IFA_ADDRESS && !n.Addr.IsValid()) {
			n.Addr = a
		}
	})
	return n
}

func parseLink(gone bool, data []byte) (Notice, bool) {
	if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_UNSPEC { // a bridge also sends messages of its own family about its ports
		return Notice{}, false
	}
	flags := nl.NativeEndian().Uint32(data[8:])
	n := Notice{Kind: Link, Gone: gone, Index: int(nl.NativeEndian().Uint32(data[4:])), Up: flags&uint32(net.FlagUp) != 0}
	eachAttribute(data[unix.SizeofIfInfomsg:], func(what uint16, value []byte) {
		switch {
		case what == unix.IFLA_IFNAME:
			n.Name = readString(value)
		case what == unix.IFLA_MASTER && len(value) == 4:
			n.Master = int(nl.NativeEndian().Uint32(value))
		}
	})
	return n, true
}

// sizeofNfgenmsg is the size of the header of an nfnetlink message.
const sizeofNfgenmsg = 4

// parseRuleset parses one message of the nftables monitor. It ignores new elements of sets, and objects without a table.
func parseRuleset(kind uint16, data []byte) (Notice, bool) {
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(data) < sizeofNfgenmsg {
		return Notice{}, false
	}
	n := Notice{}
	switch kind & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE:
		n.Kind = Rules
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE:
		n.Kind, n.Gone = Rules, true
	case unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
		n.Kind, n.Gone = Elements, true
	default:
		return Notice{}, false
	}
	eachAttribute(data[sizeofNfgenmsg:], func(what uint16, value []byte) {
		if what == unix.NFTA_TABLE_NAME { // attribute 1 is the table's name in all of these messages
			n.Name = readString(value)
		}
	})
	return n, true
}

// eachAttribute passes each attribute of a message to the caller's function. It stops at a truncated attribute.
func eachAttribute(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(nl.NativeEndian().Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		f(nl.NativeEndian().Uint16(b[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(len(b), (size+3)&^3):]
	}
}

func readString(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// eachMessage passes each netlink message in a buffer to the caller's function.
func eachMessage(b []byte, f func(kind uint16, data []byte)) {
	order := nl.NativeEndian()
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(order.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return
		}
		f(order.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size])
		b = b[min(len(b), (size+3)&^3):]
	}
}
