// Package wire is what the agent and a shim say to each other over the shim's
// unix socket: one JSON value per line, requests with replies, and events that
// the shim sends to every connection. Unknown fields are ignored on both sides,
// for a shim outlives the agent that started it, also over an upgrade.
//
//	agent --Request{ID,Method,Body}--> shim
//	agent <--Reply{ID,Error,Body}----- shim
//	agent <--Reply{Event: Exited}----- shim
//
// After a successful attach request the connection carries Frames instead.
package wire
