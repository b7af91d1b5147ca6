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

// most is the size of what is read at once; the kernel sends a message at a time.
const most = 16 << 10

// firstPause and longestPause bound the time until the kernel is listened to again.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Config says where to look.
type Config struct {
	Host   netns.NS // whose way out it is
	Bridge string   // of the pods
	Log    *slog.Logger
}

// An Uplink is the machine's way out.
type Uplink struct {
	cfg     Config
	changed chan struct{} // capacity 1
	links   map[int]link  // by index; Run's
}

type link struct{ pods, running bool }

// New starts nothing.
func New(cfg Config) *Uplink {
	return &Uplink{cfg: cfg, changed: make(chan struct{}, 1), links: map[int]link{}}
}

// Changed is signalled when the way out may be another than before.
func (u *Uplink) Changed() <-chan struct{} { return u.changed }

// Run listens to the kernel until ctx ends. That it cannot is no error: who waits for
// the way out tries again by himself too, and so does this.
func (u *Uplink) Run(ctx context.Context) error {
	pause, told := firstPause, ""
	for {
		began := time.Now()
		err := u.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > longestPause { // it did listen
			pause, told = firstPause, ""
		}
		if err.Error() != told {
			u.cfg.Log.Warn("changes of the network are not seen; the API server is tried at intervals", "error", err)
			told = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
		u.signal() // what happens until it listens again is not told
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
	if err := u.look(); err != nil {
		return err
	}
	b := make([]byte, most)
	for {
		all, err := read(messages, b)
		if errors.Is(err, unix.ENOBUFS) { // there was more than could be told
			u.signal()
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range all {
			if u.news(m) {
				u.signal()
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
		return nil, fmt.Errorf("parse what netlink says: %w", err)
	}
	return all, nil
}

// subscribe opens a socket in the host's namespace, where it stays.
func (u *Uplink) subscribe() (messages *os.File, err error) {
	err = u.cfg.Host.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		messages = os.NewFile(uintptr(fd), "netlink")
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE})
	})
	if err != nil {
		if messages != nil {
			messages.Close()
		}
		return nil, fmt.Errorf("subscribe to netlink: %w", err)
	}
	return messages, nil
}

// look takes the links that there are, after the subscription: none is missed.
func (u *Uplink) look() error {
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
		pods:    a.Name == u.cfg.Bridge || l.Type() == "veth" && a.MasterIndex != 0,
		running: a.RawFlags&unix.IFF_RUNNING != 0,
	}
}

// news reports whether a message says something of the way out.
func (u *Uplink) news(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return u.linkNews(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return u.routeNews(m)
	}
	return false
}

// linkNews is that a link can be used now, or no more.
func (u *Uplink) linkNews(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC { // a bridge tells of its ports too
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
	return !now.pods && now.running != before.running
}

// routeNews is that a route leads elsewhere, or nowhere.
func (u *Uplink) routeNews(m syscall.NetlinkMessage) bool {
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
			return !u.links[int(nl.NativeEndian().Uint32(a.Value))].pods
		}
	}
	return true
}

func (u *Uplink) signal() {
	select {
	case u.changed <- struct{}{}:
	default:
	}
}
