// Package plan decides which actions a pod needs. Its function Decide is pure: it uses no I/O, clock, goroutines or
// locks. The only argument of Decide is an Input. Most of an Input comes from the runtime, so almost no state is
// lost when the agent restarts.
//
//	wish (desired), view (observe), actions in flight, failures, now
//	        |
//	     Decide --> actions to start, actions to cancel, when to ask again, done
//
// The life of a pod is derived from the Input at each call:
//
//	(wanted) --Admit--> End, or admitted --RunSandbox--> ready --StartContainer--> inits in order, sidecars among them
//	                                                       |                              |
//	                                 sandbox lost or stale |                              v
//	                             stop what runs, the next <+        mains, restarted by policy; the spec changed: Update
//	                             sandbox attempt                                          |
//	                                                                                      | all ended, deadline, End, Deleting
//	                                                                                      v
//	(done) <--Forget-- RemoveSandbox <-- RemoveContainer <--(Deleting)-- stop mains, then sidecars, then the sandbox
//	                                                                                      |
//	                                                                                      '--(still wanted)--> Ended
//
// The last containers of a pod that has finished but is still wanted are kept for their logs. Ended releases the
// resources that a pod needs only while it runs. Admit is repeated if the reason for the pod's End may no longer
// apply.
//
// When the machine shuts down, the containers of a pod are stopped as if the pod were deleted, but the pod is not
// removed. Unmount unmounts its volumes. It runs again after the next boot.
//
// The runtime performs the actions on sandboxes and containers, and their results are visible in its reports. The
// worker performs the others: Admit, Allocate, Update, Ended, Unmount, Forget, PostStart and PreStop. The decisions of Admit
// and Allocate are stored, and so is the return of a postStart hook. Only the worker knows the results of the other
// actions, so these may be repeated after a restart of the agent.
package plan
