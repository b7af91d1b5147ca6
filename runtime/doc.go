// Package runtime contains no code. The packages below it run containers. Only runtime may import containerd.
//
// The interface and its implementations:
//
//	cri       the interface between agent and runtime
//	ctrd      the built-in runtime
//	remote    a runtime at a CRI socket
//	fake      a runtime in memory, for tests
//	crisuite  the contract tests
//
// Images and containers:
//
//	daemon     the storage of containerd
//	image      imports, pulls and unpacks images
//	ocispec    converts a container to an OCI specification
//	abilities  the features of an OCI runtime
//	shim       the processes that run the containers of pods
//	taskshim   the shims of containerd, such as gVisor
//	stream     exec, attach and port-forward for CRI clients
//	drain      the output of a process
//	console    the terminal of a process
//
// The host:
//
//	apparmor   AppArmor profiles
//	cgroup     cgroups of pods
//	mounts     unmounts and removes directories safely
//	namespace  namespaces of sandboxes
//	selinux    SELinux labels
//	tree       copies directories with untrusted content
package runtime
