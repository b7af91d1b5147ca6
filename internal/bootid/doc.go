// Package bootid identifies a boot of the machine. A caller stores the ID. A different ID later
// means that the machine was restarted.
//
//	machine    /proc/sys/kernel/random/boot_id
//	container  the same, and the start time of the container's first process: inside a container,
//	           boot_id is the host's, and does not change when the container restarts
//
// A different ID proves that no process of the earlier boot is running. An equal ID does not prove
// that a process is still running. To find out whether a process is running, read the kernel's
// state (cgroups, processes). Do not infer it from files, because a cleanup can remove them.
package bootid
