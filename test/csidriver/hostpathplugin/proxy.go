package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// runProxy joins each connection to the first listener with a connection to the second listener,
// until the context ends.
func runProxy(ctx context.Context, in, out net.Listener) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	callers, drivers := make(chan net.Conn), make(chan net.Conn)
	var all sync.WaitGroup
	for l, to := range map[net.Listener]chan<- net.Conn{in: callers, out: drivers} {
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					stop(err)
					return
				}
				select {
				case to <- c:
				case <-ctx.Done():
					c.Close()
					return
				}
			}
		})
	}
	all.Go(func() {
		for {
			caller, driver := nextPair(ctx, callers, drivers)
			if caller == nil {
				return
			}
			all.Go(func() { join(ctx, caller, driver) })
		}
	})
	<-ctx.Done()
	in.Close()
	out.Close()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// nextPair returns one connection from each side, or nil if the context has ended. The driver may connect long after the caller. The caller
// may close the connection meanwhile. nextPair drops such a closed connection, so that no driver's connection is joined with it.
func nextPair(ctx context.Context, callers, drivers <-chan net.Conn) (caller, driver net.Conn) {
	for {
		var more <-chan net.Conn
		if driver == nil {
			more = drivers
		}
		from := callers
		if caller != nil {
			from = nil
		}
		select {
		case caller = <-from:
		case driver = <-more:
		case <-ctx.Done():
			for _, c := range []net.Conn{caller, driver} {
				if c != nil {
					c.Close()
				}
			}
			return nil, nil
		}
		if caller == nil || driver == nil {
			continue
		}
		for _, c := range []*net.Conn{&caller, &driver} {
			if isClosed(*c) {
				(*c).Close()
				*c = nil
			}
		}
		if caller != nil && driver != nil {
			return caller, driver
		}
	}
}

// isClosed reports whether the peer has closed the connection. There may still be unread data.
func isClosed(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	hung := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		hung = err == nil && n > 0
	})
	return err != nil || hung
}

// join copies data between two connections until one of them ends. Then it closes both.
func join(ctx context.Context, a, b net.Conn) {
	log.Printf("%v is joined with %v", a.LocalAddr(), b.RemoteAddr())
	ended := context.AfterFunc(ctx, func() { a.Close(); b.Close() })
	defer ended()
	var both sync.WaitGroup
	for _, p := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			io.Copy(p[0], p[1]) // returns an error when one side is closed; this is expected
			a.Close()
			b.Close()
		})
	}
	both.Wait()
}
