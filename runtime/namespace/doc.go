// Package namespace makes the namespaces of a sandbox and keeps them alive
// without a process, by bind mounts:
//
//	<dir>/net, <dir>/ipc, <dir>/uts
//
// The mounts must be visible where the OCI runtime runs: the agent's service must
// not have a mount namespace of its own.
package namespace
