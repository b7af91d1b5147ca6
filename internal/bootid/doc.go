// Package bootid names one run of the machine, from its boot to its end. It is the one
// place that answers "was the machine restarted since?": whoever stores an ID compares it
// with a later one.
//
//	machine    /proc/sys/kernel/random/boot_id
//	container  the same, and the start time of the container's first process: boot_id is
//	           the host's there, and does not change when the container is restarted
//
// An ID says that nothing of an earlier boot can run any more. It does not say what of this
// boot still runs: that is asked of the kernel (cgroups, processes), never inferred from
// files that a cleaner can remove.
package bootid
