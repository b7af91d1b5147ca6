// Package plan decides which actions a pod needs. It is a pure function: it has no I/O, clock, goroutines or locks.
// Its only argument is an Input. Most of an Input comes from the runtime, so little is lost when the agent restarts.
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
// A pod that has finished but is still wanted keeps its last containers for their logs. Ended releases the resources
// that a pod needs only while it runs. Admit is repeated if the reason of the pod's End may no longer apply.
//
// When the machine shuts down, a pod ends as if it were deleted, but is not removed. It runs again after the next
// boot.
//
// The runtime carries out the actions on sandboxes and containers and shows their effect. The worker carries out the
// others: Admit, Allocate, Update, Ended, Forget, PostStart and PreStop. The decisions of Admit and Allocate and the
// end of a postStart hook are stored. The other effects are known only to the worker, so these actions may be
// repeated after a restart of the agent.
package plan
