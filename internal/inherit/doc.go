// Package inherit makes the state that a process takes over from whoever started it what
// the processes of this project are written for, before it does anything else. Without it
// a umask, an ignored signal or a limit of somebody's shell reaches the files of pods and
// the pods themselves.
//
//	main of the agent, the shim --> Agent, Shim --exec of itself--> the same, put right
//	                                      '--> the process goes on
//
// What belongs to a thread (signal mask, nice value, scheduling policy, CPUs, personality) is
// inherited by every thread of a Go program before its first line runs. So it is set
// right on one thread, which then executes the program anew; the process keeps its ID,
// arguments and descriptors. That happens only where something is wrong.
//
//	                    agent           shim            commands
//	umask               022             022             kept: files are the caller's
//	signal mask         empty           empty           kept
//	ignored signals     default, SIGHUP stays without effect on the agent; commands: kept
//	descriptors from 3  closed on exec  kept: passed by the agent, which closes all others
//	PATH, LD_*, LISTEN_* normal         by the agent    kept
//	limits of CPU time, file size
//	                    none            none            kept
//	limits of memory, processes
//	                    kept            none            kept
//	open files          as configured   kept: the agent passes on what it was started with
//	stack               kept            at least 8 MiB  kept
//	nice, policy, personality, CPUs, class of input and output
//	                    kept            normal          kept
//
// The agent keeps its nice value, policy and limits of memory, which an administrator may
// have given it by its unit. Containers come from shims; what else starts processes of
// containers is itself started by Start, and has what a shim has. The cgroup is not looked at: containers have their
// own, and kubeletCgroups places the agent.
package inherit
