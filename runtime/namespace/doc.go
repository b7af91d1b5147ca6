// Package namespace creates the namespaces of a sandbox. Bind mounts keep them alive without a
// process:
//
//	<dir>/net, <dir>/ipc, <dir>/uts, <dir>/user
//	<dir>/sysfs    keeps the sysfs of net, so that it is the same for each container
//
// If the sandbox has a user namespace, it owns the others. So the sandbox's root may change its own
// network, but not the host's.
//
// The OCI runtime must see these bind mounts, so the agent's service must not run in a mount
// namespace of its own.
package namespace
