package call

import (
	"context"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
)

// newDialer returns a dialer without TCP keep-alive, because each connection is used for only one call.
func newDialer() *net.Dialer { return &net.Dialer{KeepAlive: -1} }

// Connect opens a TCP connection and closes it. A timeout of 0 means that only ctx limits the call.
func (c *Caller) Connect(ctx context.Context, t Target, a *v1.TCPSocketAction, timeout time.Duration) error {
	address, err := t.Address(a.Host, a.Port)
	if err != nil {
		return err
	}
	ctx, stop := withTimeout(ctx, timeout)
	defer stop()
	conn, err := newDialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
