// Package trial decides which configuration a node keeps, so that it never loses one that works.
// Only Load and Save do I/O.
//
//	          Assign                Begin                 Accept
//	(nothing) ------> assigned ------------> on trial ------------> good (last known good)
//	                     ^                      |                     the one before it is kept too
//	                     |  Fail, interrupted   |  Fail
//	                     '----- (up to 3 times) +------> failed: the good one stays in use
//
// A configuration or a program is assigned by a followed source or by an operator: see Assign. A
// ConfigMap is assigned only when its content changes, so that a restart of the agent neither
// reverts nor repeats anything. A program is identified by its archive, and failed programs are
// recorded separately.
//
// The record is one file, which is replaced atomically, so that a power cut leaves no partial step. It is not in the
// database because a process without a lock must read it before the configuration is known, and because it must
// survive a broken database. At each start, Use selects the configuration. The process that the guard started for the
// trial uses the configuration on trial, every other process uses the good one. A process that finds the trial of an
// earlier process in the record ends that trial as failed. So kill -9, a crash, a hang (the guard ends it), a reboot
// or a power cut at any moment lead to the last known good configuration.
//
// Dynamic kubelet configuration, removed in Kubernetes 1.24 (KEP-281), had two problems that are avoided here. The
// last known good configuration changes without a restart, and a reboot during a trial does not count as success.
package trial
