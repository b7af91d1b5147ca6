// Package flash says how many bytes a day are written to the disk that the node's state is
// on, and by what: flash memory takes only so many.
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
// The kernel counts a page when a process makes it dirty, so journals, file system records
// and what the flash itself moves come on top; they are in the device's figure. What a
// process writes counts for any disk. Figures are by days of UTC.
//
// Pods that have used no CPU time since have written nothing: their files are not read again.
//
// Without a budget nothing is read unless somebody asks: what was written since the last
// time is spread over the days between, and after a boot over the time since then. How long
// that is says the time since the boot, and not the clock, which may have been set meanwhile:
// a board without one begins in 1970, and knows its days again once a network told. The
// account is stored when it is the first of a boot, when it is half a day old, when the day is
// over, and when the agent ends: some hundred bytes a day.
//
// https://docs.kernel.org/admin-guide/iostats.html
// https://docs.kernel.org/filesystems/proc.html
package flash
