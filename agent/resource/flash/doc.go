// Package flash reports how many bytes a day are written to the disk of the node's state, and by
// what. Flash memory endures a limited number of writes.
//
//	/proc/diskstats -- of the device below the state directory: all writes, whoever's -----+
//	/proc/self/io --- the agent: less what images wrote, the database and small files -----+
//	image service --- what pulls and imports unpacked and downloaded ----------------------+--> Sample
//	/proc/SHIM/task/*/io --- threads of shims: logs ---------------------------------------+     |
//	/proc/PID/io of pods, and of shims with the children they waited for: pods ------------+     v
//	                                                                              account: by day --> store
//	islet status, /metrics --Figures--> a Sample, not more often than once a minute
//	Run, with a budget: one every ten minutes --> event, and Exceeded: what can wait does
//
// The kernel counts a page when a process makes it dirty. Journals, file system metadata and the
// flash's own copies come on top; the device's figure includes the first two. A process's writes
// count for any disk. Days are in UTC.
//
// Pods that have used no CPU time since the last sample have written nothing, so their files are
// not read again.
//
// Without a budget nothing is read unless a caller requests it. The bytes since the last sample are
// spread over the days between, after a boot over the time since the boot. That time is measured by
// the uptime, not the clock, which may have been set meanwhile: a board without a clock starts in
// 1970. The account is stored at the first sample of a boot, when it is half a day old, at the end
// of a day, and when the agent ends: some hundred bytes a day.
//
// https://docs.kernel.org/admin-guide/iostats.html
// https://docs.kernel.org/filesystems/proc.html
package flash
