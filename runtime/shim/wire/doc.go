// Package wire defines the protocol between the agent and a shim on the shim's unix socket. Each
// message is a line with one JSON value: a request, a reply or an event. The shim sends events to
// every connection. Both sides ignore unknown fields, because a shim continues to run after an
// upgrade of the agent.
//
//	agent --Request{ID,Method,Body}--> shim
//	agent <--Reply{ID,Error,Body}----- shim
//	agent <--Reply{Event: Exited}----- shim
//
// After a successful attach request, the connection carries Frames instead of these messages.
package wire
