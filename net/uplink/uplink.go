package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
)

// bufferSize is the size of the read buffer. The kernel sends one message at a time.
const bufferSize = 16 << 10

// firstPause and longestPause are the minimum and maximum pause between an error and the next attempt to listen.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Config is the configuration of an Uplink.
type Config struct {
	Host   netns.NS // the namespace to watch
	Bridge string   // the pods' bridge
	Log    *slog.Logger
}

// An Uplink watches the machine's connection to the network.
type Uplink struct {
	cfg     Config
	changed chan struct{} // capacity 1
	moved   chan struct{} // capacity 1
	links   map[int]link  // by index; used only by Run
}

type link struct{ leadsToPods, running bool }

// usable contains the flags of a link that is up and has a carrier. IFF_RUNNING alone is not sufficient: the kernel also sets this flag of
// a new link for a moment, before it has evaluated the carrier. A pod's interface is created that way, and only then connected to the
// bridge, so each start of a pod would cause a probe of the API server.
const usable = unix.IFF_RUNNING | unix.IFF_LOWER_UP

// New returns an Uplink. Run starts it.
func New(cfg Config) *Uplink {
	return &Uplink{cfg: cfg, changed: make(chan struct{}, 1), moved: make(chan struct{}, 1), links: map[int]link{}}
}

// Changed receives a value when the connection may have changed.
func (u *Uplink) Changed() <-chan struct{} { return u.changed }

// Moved receives a value when the addresses of the machine may have changed. It does so whenever Changed does, and also when only an
// address was added, removed or renewed, or has become usable.
func (u *Uplink) Moved() <-chan struct{} { return u.moved }

// Run listens to the kernel until ctx ends. It logs errors, and listens again after a pause. It may miss changes during the pause, so
// receivers of Changed must also poll.
func (u *Uplink) Run(ctx context.Context) error {
	pause, logged := firstPause, ""
	for {
		began := time.Now()
		err := u.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > longestPause { // Run has listened for some time before the error
			pause, logged = firstPause, ""
		}
		if err.Error() != logged {
			u.cfg.Log.Warn("cannot watch network changes; they are noticed late", "error", err)
			logged = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
		u.signalChange() // changes during the pause may have been missed
	}
}

func (u *Uplink) listen(ctx context.Context) error {
	messages, err := u.subscribe()
	if err != nil {
		return err
	}
	defer messages.Close()
	defer context.AfterFunc(ctx, func() { messages.Close() })()
	clear(u.links)
	if err := u.loadLinks(); err != nil {
		return err
	}
	b := make([]byte, bufferSize)
	for {
		all, err := read(messages, b)
		if errors.Is(err, unix.ENOBUFS) { // messages were lost
			u.signalChange()
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range all {
			switch {
			case u.isRelevant(m):
				u.signalChange()
			case u.isAddress(m):
				wake(u.moved)
			}
		}
	}
}

func read(messages *os.File, b []byte) ([]syscall.NetlinkMessage, error) {
	n, err := messages.Read(b)
	if err != nil {
		return nil, fmt.Errorf("read from netlink: %w", err)
	}
	all, err := syscall.ParseNetlinkMessage(b[:n])
	if err != nil {
		return nil, fmt.Errorf("parse netlink messages: %w", err)
	}
	return all, nil
}

// subscribe opens a netlink socket in the configured namespace.
func (u *Uplink) subscribe() (messages *os.File, err error) {
	err = u.cfg.Host.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		messages = os.NewFile(uintptr(fd), "netlink")
		return unix.Bind(fd, &unix.SockaddrNetlink{
			Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE |
				unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR,
		})
	})
	if err != nil {
		if messages != nil {
			messages.Close()
		}
		return nil, fmt.Errorf("subscribe to netlink: %w", err)
	}
	return messages, nil
}

// loadLinks lists the links. It is called after subscribe, so that no link is missed.
func (u *Uplink) loadLinks() error {
	h, err := u.cfg.Host.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	all, err := h.LinkList()
	if err != nil {
		return fmt.Errorf("list the links: %w", err)
	}
	for _, l := range all {
		u.links[l.Attrs().Index] = u.linkOf(l)
	}
	return nil
}

func (u *Uplink) linkOf(l netlink.Link) link {
	a := l.Attrs()
	return link{
		leadsToPods: a.Name == u.cfg.Bridge || l.Type() == "veth" && a.MasterIndex != 0,
		running:     a.RawFlags&usable == usable,
	}
}

// isRelevant reports whether a message may be about the machine's connection.
func (u *Uplink) isRelevant(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return u.linkChanged(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return u.routeChanged(m)
	}
	return false
}

// linkChanged reports whether a link has become usable or unusable.
func (u *Uplink) linkChanged(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC { // a bridge also sends messages of its own family about its ports
		return false
	}
	l, err := netlink.LinkDeserialize((*unix.NlMsghdr)(&m.Header), m.Data)
	if err != nil {
		return false
	}
	index, now := l.Attrs().Index, u.linkOf(l)
	before := u.links[index]
	u.links[index] = now
	if m.Header.Type == unix.RTM_DELLINK {
		now.running = false
		delete(u.links, index)
	}
	return !now.leadsToPods && now.running != before.running
}

// routeChanged reports whether a message is about a route that may belong to the machine's connection. It returns false for routes to pods.
func (u *Uplink) routeChanged(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofRtMsg {
		return false
	}
	r := nl.DeserializeRtMsg(m.Data)
	if r.Table != unix.RT_TABLE_MAIN || r.Type != unix.RTN_UNICAST {
		return false
	}
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_OIF && len(a.Value) == 4 {
			return !u.links[int(nl.NativeEndian().Uint32(a.Value))].leadsToPods
		}
	}
	return true
}

// isAddress reports whether a message is about an address of a link that does not lead to pods. Such a message alone does not affect the
// connection to the API server, because an address that makes the server reachable comes with a route. The kernel repeats the message
// whenever a lifetime is renewed.
func (u *Uplink) isAddress(m syscall.NetlinkMessage) bool {
	if t := m.Header.Type; t != unix.RTM_NEWADDR && t != unix.RTM_DELADDR || len(m.Data) < unix.SizeofIfAddrmsg {
		return false
	}
	return !u.links[int(nl.NativeEndian().Uint32(m.Data[4:]))].leadsToPods
}

func (u *Uplink) signalChange() {
	wake(u.changed)
	wake(u.moved)
}

func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
