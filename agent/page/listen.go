package page

import (
	"net"
	"sync"
)

// maxConnections bounds what local users can make the agent hold.
const maxConnections = 16

// limited has so many connections at a time; others wait.
func limited(ln net.Listener) net.Listener {
	return &listener{Listener: ln, free: make(chan struct{}, maxConnections), closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	free   chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &conn{Conn: c, done: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
