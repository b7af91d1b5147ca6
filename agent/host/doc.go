// Package host is the district of what the agent is to the machine.
//
//	process   one process with limits, which holds its directories and writes a log
//	home      cgroups of the agent and of the system
//	volatile  memory over directories on a disk that takes no writes
//	shutdown  ends pods in order when the machine goes off
package host
