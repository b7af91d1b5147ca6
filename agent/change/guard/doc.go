// Package guard runs an agent on trial under supervision. The process that the service manager started becomes a
// guard, which does as little as possible. The agent on trial is its child:
//
//	agent --Become(exec, same pid)--> guard --starts--> agent on trial
//	                                    |                   |
//	                                    |<-- good, bad -----|   (a pipe)
//	                                    |<-- exit, silence until the deadline
//	                                    | ends the child
//	agent <-----Become(exec, same pid)--'
//
// A trial does not interrupt the pods, because they are children of shims and not of the agent. The guard is a
// separate process because a timer in the agent could not handle an agent that hangs or crashes, or a broken program.
// It works the same under systemd, under OpenRC, in a container and without an init system, and needs no watchdog of
// the service manager. If the guard is killed, the kernel also kills the child, so that two agents never run at the
// same time.
//
// The guard does not store the result of a successful trial. The child stores the success before it reports the success
// to the guard. The child installs the new program with a rename. If this rename has happened, the guard executes the
// new program, even if the child ended without a report. The child's reports are read with a size limit. If a child
// closes the pipe, the trial goes on until the deadline. Without a trial there is no guard, and the only cost is that
// main reads an environment variable.
package guard
