// Package grpcwait waits for gRPC connections.
//
//	a state --Change: connects while it is Idle--> another state, or ctx has ended
package grpcwait
