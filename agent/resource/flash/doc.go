// Package flash reports, by cause, how many bytes are written each day to the disk that contains the node's state
// directory. Flash memory endures only a limited number of writes.
//
//	/proc/diskstats -- of the device below the state directory: writes of all processes ---+
//	/proc/self/io --- the agent: less what images wrote, the database and small files -----+
//	image service --- what pulls and imports unpacked and downloaded ----------------------+--> Sample
//	/proc/SHIM/task/*/io --- threads of shims: logs ---------------------------------------+     |
//	/proc/PID/io of pods, and of shims with the children they waited for: pods ------------+     v
//	                                                                              account: by day --> store
//	islet status, /metrics --Figures--> a Sample, not more often than once a minute
//	Run, with a budget: one every ten minutes --> event, and BudgetExceeded: other parts delay writes
//
// The kernel counts a page as written when a process makes it dirty. The figures of processes do not include
// journals, file system metadata and copies inside the flash memory. The device's figure includes journals and metadata.
// A process's writes to all disks are counted together. Days are in UTC.
//
// Pods that have used no CPU time since the last sample have written nothing, so their files are
// not read again.
//
// Without a budget, a sample is only taken when a caller requests the figures. The bytes written since the last sample
// are spread over the days since then. After a boot, they are spread over the time since the boot, which is computed
// from the uptime. The clock cannot be used for that, because it may have been set meanwhile: a board without a
// battery-backed clock starts in 1970. If a clock is never set and starts on the same day at each boot, a day is 25
// hours of running time. The account is stored at the first sample of a boot, when its last copy is half a day old, at
// the end of a day, and when the agent ends. This writes some hundred bytes a day.
//
// https://docs.kernel.org/admin-guide/iostats.html
// https://docs.kernel.org/filesystems/proc.html
package flash
