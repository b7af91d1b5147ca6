package notice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
)

// A Kind is the kind of object that a notice is about.
type Kind int

// The kinds.
const (
	Link        Kind = iota + 1 // Name, Index, Master and Up describe the link
	Address                     // the address Addr of the link Index
	Route                       // a route through the link Index; Default is set for a default route
	Sysctl                      // forwarding, or another sysctl whose changes the kernel reports; Index is negative for all links
	Rules                       // Name is an nftables table of any family; the table, one of its chains or one of its rules has changed
	Elements                    // Name is an nftables table; elements were removed from its sets
	NoticesLost                 // the listener lost an unknown number of notices of any kind
)

// A Notice reports that an object of the namespace was added, changed or removed.
type Notice struct {
	Kind   Kind
	Gone   bool
	Up     bool // the administrative state, which does not depend on the carrier
	Index  int
	Master int
	Name   string
	Addr   netip.Addr

	Default bool
}

// bufferSize is the size of the read buffer in bytes. The kernel sends links, addresses and routes in separate messages, and the nftables
// ruleset in chunks of one memory page.
const bufferSize = 8 << 10

// routeGroups are the multicast groups of route netlink.
const routeGroups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE |
	1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)

// A Listener receives the notices of one namespace. Open creates it.
type Listener struct{ route, ruleset *os.File }

// Open subscribes to the notices of a namespace. Run reports every change that occurs after Open. On a kernel without nftables, there are
// no notices about the ruleset.
func Open(ns netns.NS) (l *Listener, err error) {
	l = &Listener{}
	err = ns.Do(func() error {
		if l.route, err = subscribe("rtnetlink", unix.NETLINK_ROUTE, routeGroups); err != nil {
			return err
		}
		l.ruleset, err = subscribe("nfnetlink", unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1))
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return nil
		}
		return err
	})
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("subscribe to netlink: %w", err)
	}
	return l, nil
}

func subscribe(name string, family int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Close ends Run.
func (l *Listener) Close() {
	for _, f := range []*os.File{l.route, l.ruleset} {
		if f != nil {
			f.Close()
		}
	}
}

// Run passes each notice to the caller's function until ctx ends, and then closes the listener. The function must be safe for concurrent
// use and must not block.
func (l *Listener) Run(ctx context.Context, tell func(Notice)) error {
	defer l.Close()
	g, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, l.Close)()
	g.Go(func() error { return read(ctx, l.route, parseRoute, tell) })
	if l.ruleset != nil {
		g.Go(func() error { return read(ctx, l.ruleset, parseRuleset, tell) })
	}
	return g.Wait()
}

func read(ctx context.Context, from *os.File, parse func(uint16, []byte) (Notice, bool), tell func(Notice)) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	b := make([]byte, bufferSize)
	for {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = unix.Read(int(fd), b)
			return !errors.Is(failed, syscall.EAGAIN) && !errors.Is(failed, syscall.EINTR)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read from %s: %w", from.Name(), err)
		case errors.Is(failed, unix.ENOBUFS) || failed == nil && n == len(b): // a message that fills the buffer may be truncated
			tell(Notice{Kind: NoticesLost})
			continue
		case failed != nil:
			return fmt.Errorf("read from %s: %w", from.Name(), failed)
		}
		eachMessage(b[:n], func(kind uint16, data []byte) {
			if n, ok := parse(kind, data); ok {
				tell(n)
			}
		})
	}
}
