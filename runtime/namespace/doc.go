// Package namespace makes the namespaces of a sandbox and keeps them alive
// without a process, by bind mounts:
//
//	<dir>/net, <dir>/ipc, <dir>/uts, <dir>/user
//	<dir>/sysfs    holds the sysfs of net, so that it is the same for each container
//
// With a user namespace the others are made in it and belong to it: root of the sandbox
// may change its own network and not the host's.
//
// The mounts must be visible where the OCI runtime runs: the agent's service must
// not have a mount namespace of its own.
package namespace
