package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/islet-edge/islet/net/netns"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// addressTime is the maximum time to wait until an IPv6 address is usable. An address normally becomes usable in less than a millisecond.
// After addressTime, the pod starts anyway.
const addressTime = time.Second

// A settleWatch waits until new IPv6 addresses are usable. At first, the kernel only records a new address. Later, a kernel worker enables
// reception and neighbour discovery for the address. Finally, the worker sends a netlink message about the local route to the address.
type settleWatch struct{ socket *nl.NetlinkSocket }

// watchFor returns a watch for the addresses. Call it before adding the addresses. If none of the addresses is an IPv6 address, waitUsable
// returns immediately.
func watchFor(ns netns.NS, addrs []netip.Prefix) (w settleWatch, err error) {
	for _, a := range addrs {
		if !a.Addr().Is6() {
			continue
		}
		err = ns.Do(func() error {
			w.socket, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
			return err
		})
		if err != nil {
			return w, fmt.Errorf("watch routes: %w", err)
		}
		return w, nil
	}
	return w, nil
}

func (w settleWatch) close() {
	if w.socket != nil {
		w.socket.Close()
	}
}

// waitUsable returns when the addresses are usable, or after addressTime.
func (w settleWatch) waitUsable(addrs []netip.Prefix) error {
	if w.socket == nil {
		return nil
	}
	missing := map[netip.Addr]bool{}
	for _, a := range addrs {
		if a.Addr().Is6() {
			missing[a.Addr()] = true
		}
	}
	for end := time.Now().Add(addressTime); len(missing) > 0; {
		left := unix.NsecToTimeval(max(time.Until(end), time.Microsecond).Nanoseconds())
		_ = w.socket.SetReceiveTimeout(&left) // sets a field; never fails
		messages, _, err := w.socket.Receive()
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch routes: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type == unix.RTM_NEWROUTE {
				delete(missing, localRoute(m.Data))
			}
		}
	}
	return nil
}

// localRoute returns the destination of a route message if the route is a local route to a single IPv6 address. Otherwise it returns the
// zero value.
func localRoute(data []byte) netip.Addr {
	if len(data) < unix.SizeofRtMsg {
		return netip.Addr{}
	}
	msg := nl.DeserializeRtMsg(data)
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofRtMsg:])
	if err != nil || msg.Type != unix.RTN_LOCAL || msg.Dst_len != 128 {
		return netip.Addr{}
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			addr, _ := netip.AddrFromSlice(a.Value)
			return addr
		}
	}
	return netip.Addr{}
}

// evaluateCarriers makes the kernel process the carrier changes of a port and its bridge immediately, which starts forwarding. Otherwise
// the kernel may process them a second later, and packets are lost until then.
func evaluateCarriers(port, bridge string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	return errors.Join(ethtoolLink(fd, port), ethtoolLink(fd, bridge))
}
