package grpcwait

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// attempt is the time after which Change connects again.
const attempt = time.Second

// Change waits until the state of a connection is another one than s. It returns false if ctx ends before. While the connection is Idle,
// Change connects.
//
// A server that closes each connection at once can make the connection Idle again before grpc's WaitForStateChange begins. Then nobody
// would connect any more. So Change connects again after a while.
func Change(ctx context.Context, conn *grpc.ClientConn, s connectivity.State) bool {
	for s == connectivity.Idle {
		conn.Connect()
		bounded, stop := context.WithTimeout(ctx, attempt)
		changed := conn.WaitForStateChange(bounded, s)
		stop()
		if changed || ctx.Err() != nil {
			return changed
		}
	}
	return conn.WaitForStateChange(ctx, s)
}
