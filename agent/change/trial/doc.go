// Package trial decides which configuration a node keeps. It ensures that a node never loses a configuration that
// works. Only Load and Save do I/O.
//
//	          Assign             Begin              Accept
//	(nothing) ------> assigned --------> on trial ---------> good (last known good); the previous good one is kept too
//	                     ^                |    |
//	                     |   FailTrial,   |    |  FailTrial
//	                     |  interrupted   |    '------------> failed: the good one stays in use
//	                     '(up to 3 times)-'
//
// A configuration or a program is assigned for a followed source or an operator: see Assign. A ConfigMap's
// configuration is assigned only when its content changes, so that a restart of the agent neither reverts nor repeats
// anything. A program is identified by the checksum of its archive, and failed programs are recorded separately.
//
// A configuration of a bundle is tried and accepted as others are. But the record of bundles decides whether it is assigned, and whether
// the node must give it up: see BundleFile. Load applies these decisions.
//
// The record is one file that is replaced atomically, so that a power cut cannot leave a change half done. It is not
// in the database because it is read before the configuration is known, by a process without a lock, and because it
// must survive a broken database. When a process starts, Select selects its configuration. The process that the guard
// started for the trial uses the configuration on trial. Every other process uses the good one. If the record
// contains the trial of an earlier process, the process ends that trial as failed. So the node returns to the last
// known good configuration after a kill -9, a crash, a hang (the guard ends it), a reboot or a power cut at any
// moment.
//
// Dynamic kubelet configuration, which Kubernetes 1.24 removed (KEP-281), had two problems that are avoided here. Its
// last known good configuration could change without a restart, and a reboot during the trial period counted as
// success.
package trial
