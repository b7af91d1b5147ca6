package cri

import "context"

type toolKey struct{}

// ByTool marks ctx as that of a call by a tool at the socket of Serve, rather than by the agent. A
// tool owns what it creates. It may list the agent's sandboxes and containers but not change them.
func ByTool(ctx context.Context) context.Context { return context.WithValue(ctx, toolKey{}, true) }

// IsByTool reports whether ByTool marked the call's context.
func IsByTool(ctx context.Context) bool { return ctx.Value(toolKey{}) != nil }
