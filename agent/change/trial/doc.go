// Package trial is how a node comes to keep a configuration that it was sent, and never
// loses one that works. It is pure but for Load and Save; it starts nothing.
//
//	          Assign                Begin                 Accept
//	(nothing) ------> assigned ------------> on trial ------------> good (last known good)
//	                     ^                      |                     the one before it is kept too
//	                     |  Fail, interrupted   |  Fail
//	                     '----- (up to 3 times) +------> failed: good goes on
//
// What comes is a configuration or a program, from what is followed or from a person: see Assign.
// Of a ConfigMap only a change counts, so that nothing is undone or tried again because an agent
// started; a program is known by its archive, and those that failed are kept apart.
//
// All of it is one file, replaced at once, so that no loss of power leaves half of a step. It is
// a file of its own and not in the database because it must be read before the
// configuration is known, by a process that has no lock yet, and survive what breaks the
// database. What follows from it at any start is one rule, Use: the process that the guard
// started for the trial uses what is on trial, every other process what is good; and one
// that finds a trial that is not its own fails it. So kill -9, a crash, a hang (the guard
// ends it), a reboot or a loss of power at any moment end in the last known good.
//
// The documented troubles of the feature of kubelets that was removed in Kubernetes 1.24
// (KEP-281) are none here: the last known good does not wait for a restart to move, and
// a reboot during a trial never counts as its success.
package trial
