// Package host contains the packages for the agent's process and its host.
//
// process   a process with limits, locked directories and a log
// home      cgroups of the agent and of the system
// volatile  overlays in memory for directories on a read-only disk
// shutdown  ends pods in order when the machine shuts down
package host
