// Package hook defines the small interfaces through which a feature takes part in the life of a pod. Package agent
// lists the features in one ordered slice, a Chain. The worker of a pod calls this Chain. A feature implements Named
// and the interfaces that it needs. It need not import this package, because the interfaces use only types of
// Kubernetes.
//
//	admitted --> Prepare --> Sandbox --> run sandbox --> Prepare --> Start --> Container --> create, start
//	                                         |
//	                  spec changed: Update --+
//	   resources: Grow, containers, Shrink --+
//	                                         +--> all over, still wanted --> Ended
//	                                         +--> stopped by a shutdown of the machine --> Unmount
//	                                         +--> deleted, nothing left in the runtime --> Release
//
// Each call is part of an action of the plan. Such an action runs concurrently with actions of other pods. It
// is cancelled when it is no longer wanted, and retried with a back-off after a failure. Prepare, Start,
// Update, Ended, Unmount and Release may wait for the network or for another program. They must return soon after
// their context ends. In Ended, Unmount and Release, each hook has its own time limit. While the hooks wait, they occupy
// none of the slots for starting sandboxes and containers, but the number of pods that run Prepare at the same
// time is limited. Sandbox and Container run in one of these slots, so they must not wait.
package hook
