// Package shutdown implements graceful node shutdown. When the machine shuts down, it ends the pods in groups by
// priority, the lowest first. Each group has its own grace period.
//
//	logind: PrepareForShutdown --.
//	islet shutdown --------------+--> Run --turn by turn--> Off(pod): its turn came --> plan: hooks, stop
//	RUN/shutdown, of an agent ---'     |                    Going: node not ready, no new pods
//	that was killed meanwhile          '--all ended, or late--> the lock of logind is released
//
// Meanwhile a delay inhibitor lock keeps logind from shutting down, for at most InhibitDelayMaxSec,
// which a drop-in raises if necessary. On a machine without logind the service manager calls islet
// shutdown first.
//
// Unlike in a kubelet, the pods do not fail. The next boot starts them again, with or without a network. The progress
// is stored in the run directory, which is lost at a reboot.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/ (KEP-2000, KEP-2712)
package shutdown
