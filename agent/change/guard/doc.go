// Package guard runs an agent on trial under supervision. The process that the service manager
// started becomes a guard, which does as little as possible, and the agent on trial is its child:
//
//	agent --Become(exec, same pid)--> guard --starts--> agent on trial
//	                                    |                   |
//	                                    |<-- good, bad -----|   (a pipe)
//	                                    |<-- exit, silence until the deadline
//	                                    | ends the child
//	agent <-----Become(exec, same pid)--'
//
// Pods run below shims, so a trial affects them no more than a restart of the agent. The guard is a separate process
// because a timer in the agent could not handle an agent that hangs or crashes, or a broken program. It works the
// same under systemd, under OpenRC, in a container and without an init system, and needs no watchdog of the service
// manager. If the guard is killed, the kernel kills the child with it, so that two agents never run at the same time.
//
// The guard does not store the result of a successful trial. The child does so before it reports good. If the new
// program was installed, by a rename, the guard becomes that program even if the child ended before it could report.
// The child's reports are read with a size limit. A child that closes the pipe does not end the trial; the deadline
// does. Without a trial there is no guard, and the only cost is reading an environment variable.
package guard
