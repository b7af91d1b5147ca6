// Package shutdown implements graceful node shutdown. When the machine shuts down, the package ends the pods in groups
// by priority, the lowest first. Each group has its own grace period.
//
//	logind: PrepareForShutdown --.
//	islet shutdown --------------+--> Run --turn by turn--> PodTermination(pod): its turn came --> plan: hooks, stop
//	RUN/shutdown, of an agent ---'     |                    InProgress: node not ready, no new pods
//	that was killed meanwhile          '--all ended, or late--> the lock of logind is released
//
// Meanwhile a delay inhibitor lock delays logind's shutdown for at most InhibitDelayMaxSec. If necessary, a drop-in
// raises this value. On a machine without logind, the service manager runs islet shutdown first.
//
// In contrast to a kubelet, this package does not set the pods to Failed. They are started again at the next boot,
// with or without a network. The progress is stored in the run directory, which does not survive a reboot.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/ (KEP-2000, KEP-2712)
package shutdown
