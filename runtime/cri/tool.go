package cri

import "context"

type toolKey struct{}

// ByTool marks ctx as that of a call by somebody other than the agent: a tool at the
// socket that Serve serves. What it makes is its own, and it may look at what is the
// agent's but not change it.
func ByTool(ctx context.Context) context.Context { return context.WithValue(ctx, toolKey{}, true) }

// IsByTool reports whether a call is one that ByTool marked.
func IsByTool(ctx context.Context) bool { return ctx.Value(toolKey{}) != nil }
