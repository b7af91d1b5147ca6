// Package guard lets an agent try what may break it. The process that the service manager
// knows becomes a guard, which does nothing that could break, and the agent on trial is a
// child of it:
//
//	agent --Become(exec, same pid)--> guard --starts--> agent on trial
//	                                    |                   |
//	                                    |<-- good, bad -----|   (a pipe)
//	                                    |<-- exit, silence until the deadline
//	                                    | ends the child
//	agent <-----Become(exec, same pid)--'
//
// The pods run below shims and notice nothing of it, as with any restart of the agent. Why a
// process, and not a timer in the agent: a hang, a crash or a broken program cannot
// stop it. Why not the service manager: it works the same below systemd, OpenRC, in a
// container and alone, and needs no watchdog of theirs. Should the guard itself be killed,
// the kernel kills the child with it, so that no two agents ever run.
//
// The guard decides nothing of what is kept: the child has stored that before it says good. A
// program that has taken its place, by a rename, is what becomes of the guard even if it ended
// before it could say so. What a child says is read with a bound; that it says nothing more
// ends no trial, the deadline does.
// Without a trial there is no guard, and no cost but the look at a variable.
package guard
