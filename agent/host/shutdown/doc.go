// Package shutdown ends the pods in order when the machine goes off, as Kubernetes'
// graceful node shutdown does: groups of pods by priority, the lowest first, each with a
// period of its own.
//
//	logind: PrepareForShutdown --.
//	islet shutdown --------------+--> Run --turn by turn--> Off(pod): its turn came --> plan: hooks, stop
//	RUN/shutdown, of an agent ---'     |                    Going: node not ready, no new pods
//	that was killed meanwhile          '--all ended, or late--> the lock of logind is released
//
// While it goes on, logind holds the machine up for an inhibitor lock of the kind delay; it
// does so for at most InhibitDelayMaxSec, which is raised by a drop-in if need be. A machine
// without logind has its service manager call islet shutdown first.
//
// Unlike a kubelet's, the pods are not over: the next boot starts them again, network or not.
// What goes on is noted in the run directory, which does not outlive the boot.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
// (KEP-2000, KEP-2712)
package shutdown
