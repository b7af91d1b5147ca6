// Package inherit resets the state that a process inherited from its parent. The agent and the shim
// do this first. Otherwise the umask, an ignored signal or a limit of the shell that started islet
// would apply to the files of pods and to the pods themselves.
//
//	main of the agent, the shim --> ResetAgent, ResetShim --exec of itself--> the same, with the state reset
//	                                          '--> the process continues
//
// Go's runtime starts threads before main, and each thread inherits the per-thread state (signal mask, nice value,
// scheduling policy, CPUs, personality). So the package resets this state on one thread, which then executes the
// program again. The process keeps its ID, arguments and descriptors. The program is executed again only if the
// state differed.
//
//	                    agent           shim            commands
//	umask               022             022             kept: files are the caller's
//	signal mask         empty           empty           kept
//	ignored signals     default, but SIGHUP does not end the agent; commands: kept
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
// The agent keeps its nice value, scheduling policy and memory limits, because an administrator may have set them in
// the agent's unit. Shims start most processes of containers. Some other programs start such processes as well. The
// function Start starts these programs with the state of a shim. The package does not change the cgroup. Containers
// have their own cgroups, and the setting kubeletCgroups selects the agent's cgroup.
package inherit
