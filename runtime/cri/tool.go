package cri

import "context"

type toolKey struct{}

// ByTool marks the context of a call by a client of the CRI socket, such as crictl. Such a client
// may list all sandboxes and containers, but change only those that were created through the
// socket.
func ByTool(ctx context.Context) context.Context { return context.WithValue(ctx, toolKey{}, true) }

// IsByTool reports whether ctx was marked by ByTool.
func IsByTool(ctx context.Context) bool { return ctx.Value(toolKey{}) != nil }
