// Package namespace creates the namespaces of a sandbox and pins them with bind mounts, so that they
// exist without a process:
//
//	<dir>/net, <dir>/ipc, <dir>/uts, <dir>/user
//	<dir>/sysfs    mount of the sysfs of net; see pinSysfs
//
// If the sandbox has a user namespace, the other namespaces belong to that user namespace. The root user of the sandbox
// may therefore change the network of the sandbox, but not the network of the host.
//
// The OCI runtime must see these bind mounts, so the agent must run in the host's mount namespace.
package namespace
