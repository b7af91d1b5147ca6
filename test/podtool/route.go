package main

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
)

// addRoute adds or replaces the IPv4 route SUBNET=GATEWAY, like the command ip route replace. The
// image does not contain the program ip.
func addRoute(route string) error {
	subnet, via, _ := strings.Cut(route, "=")
	to, err := netip.ParsePrefix(subnet)
	if err != nil {
		return err
	}
	gateway, err := netip.ParseAddr(via)
	if err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := syscall.Sendto(fd, routeMessage(to, gateway), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	all, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Header.Type != syscall.NLMSG_ERROR || len(m.Data) < 4 {
			continue
		}
		if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
			return syscall.Errno(errno)
		}
		return nil
	}
	return errors.New("the kernel has sent no result")
}

// routeMessage returns a message RTM_NEWROUTE of rtnetlink(7).
func routeMessage(to netip.Prefix, gateway netip.Addr) []byte {
	dst, via := to.Masked().Addr().As4(), gateway.As4()
	flags := uint16(syscall.NLM_F_REQUEST | syscall.NLM_F_ACK | syscall.NLM_F_CREATE | syscall.NLM_F_REPLACE)
	order := binary.NativeEndian
	b := order.AppendUint32(nil, 0) // set the length when it is known
	b = order.AppendUint16(b, syscall.RTM_NEWROUTE)
	b = order.AppendUint16(b, flags)
	b = order.AppendUint32(b, 1) // sequence
	b = order.AppendUint32(b, 0) // port ID: set by the kernel
	b = append(b, syscall.AF_INET, byte(to.Bits()), 0, 0, syscall.RT_TABLE_MAIN, syscall.RTPROT_STATIC, syscall.RT_SCOPE_UNIVERSE,
		syscall.RTN_UNICAST)
	b = order.AppendUint32(b, 0)
	for _, attr := range []struct {
		kind uint16
		addr [4]byte
	}{{syscall.RTA_DST, dst}, {syscall.RTA_GATEWAY, via}} {
		b = order.AppendUint16(b, 8)
		b = order.AppendUint16(b, attr.kind)
		b = append(b, attr.addr[:]...)
	}
	order.PutUint32(b, uint32(len(b)))
	return b
}
