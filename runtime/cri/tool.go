package cri

import "context"

type toolKey struct{}

// ByTool marks the context of a call that came from a tool at the socket of Serve, not from the
// agent. A tool may change only the sandboxes and containers that it has created. It may list those
// of the agent, but not change them.
func ByTool(ctx context.Context) context.Context { return context.WithValue(ctx, toolKey{}, true) }

// IsByTool reports whether ctx was marked by ByTool.
func IsByTool(ctx context.Context) bool { return ctx.Value(toolKey{}) != nil }
