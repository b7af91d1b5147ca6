// Package wire is the protocol between the agent and a shim over the shim's unix socket: one JSON
// value per line, requests with replies, and events that the shim sends to every connection. Both
// sides ignore unknown fields, because a shim outlives the agent that started it, also in an
// upgrade.
//
//	agent --Request{ID,Method,Body}--> shim
//	agent <--Reply{ID,Error,Body}----- shim
//	agent <--Reply{Event: Exited}----- shim
//
// After a successful attach request, the connection carries Frames instead.
package wire
