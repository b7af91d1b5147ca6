// Package bootid identifies a boot of the machine. A caller stores the ID. A different ID later
// means that the machine was restarted.
//
//	machine    /proc/sys/kernel/random/boot_id
//	container  the same, and the start time of the container's first process: inside a container,
//	           boot_id is the host's, and does not change when the container restarts
//
// A different ID proves that no process of the earlier boot is running. An equal ID does not prove
// that a process is still running: that has to be read from the kernel (cgroups, processes), never
// inferred from files that a cleanup can remove.
package bootid
