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

// addressTime is how long an IPv6 address is waited for. It takes well below a
// millisecond unless the machine is very busy; then the pod starts without.
const addressTime = time.Second

// A watch hears when IPv6 addresses begin to work. The kernel only notes an address
// that is added: that it receives, and answers who asks for it, is done by a worker
// some time later, which ends with a local route that is announced.
type watch struct{ socket *nl.NetlinkSocket }

// watchFor opens a watch when one of the addresses is IPv6; else it has nothing to
// wait for. It must be open before the addresses are added.
func watchFor(ns netns.NS, addrs []netip.Prefix) (w watch, err error) {
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

func (w watch) close() {
	if w.socket != nil {
		w.socket.Close()
	}
}

// wait returns when these addresses work, or after addressTime.
func (w watch) wait(addrs []netip.Prefix) error {
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
		_ = w.socket.SetReceiveTimeout(&left) // never fails: it is noted in the struct
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

// localRoute returns the destination of a route message that is about an address
// of this node.
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

// settle makes the kernel act now on the carriers of a port, which opens it, and
// of its bridge, which had none while it had no port. Left alone it does that a
// while later, up to a second, and what is sent until then is lost.
func settle(port, bridge string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	return errors.Join(ethtoolLink(fd, port), ethtoolLink(fd, bridge))
}
