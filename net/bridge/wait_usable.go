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
type settleWatch struct {
	socket  *netns.Socket
	missing map[netip.Addr]bool
}

// watchFor returns a watch for the IPv6 addresses among the addresses. Open its socket before adding the addresses.
func watchFor(addrs []netip.Prefix) *settleWatch {
	w := &settleWatch{missing: map[netip.Addr]bool{}}
	for _, a := range addrs {
		if a.Addr().Is6() {
			w.missing[a.Addr()] = true
		}
	}
	return w
}

// openSocket opens the socket of the watch on the current thread, which must be in the namespace. The socket can also be used for requests.
func (w *settleWatch) openSocket(ns netns.NS) (*netns.Socket, error) {
	group := 0
	if len(w.missing) > 0 {
		group = unix.RTNLGRP_IPV6_ROUTE
	}
	var err error
	w.socket, err = ns.SocketHere(group, func(kind uint16, body []byte) {
		if kind == unix.RTM_NEWROUTE {
			delete(w.missing, localRoute(body))
		}
	})
	return w.socket, err
}

// open opens the socket of the watch in a namespace if there are addresses to wait for.
func (w *settleWatch) open(ns netns.NS) error {
	if len(w.missing) == 0 {
		return nil
	}
	return ns.Do(func() error {
		_, err := w.openSocket(ns)
		return err
	})
}

func (w *settleWatch) close() {
	if w.socket != nil {
		w.socket.Close()
	}
}

// waitUsable returns when the addresses are usable, or after addressTime. A program that changes many routes of the node can neither extend
// this time nor make waitUsable fail: messages may then be lost.
func (w *settleWatch) waitUsable() error {
	end := time.Now().Add(addressTime)
	for left := addressTime; len(w.missing) > 0 && left > 0; left = time.Until(end) {
		err := w.socket.Await(left)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("watch routes: %w", err)
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
// the kernel may process them a second later, and packets are lost until then. The caller passes a socket of the node's namespace.
func evaluateCarriers(socket int, port, bridge string) error {
	return errors.Join(ethtoolLink(socket, port), ethtoolLink(socket, bridge))
}
