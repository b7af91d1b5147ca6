// Package plan decides which actions one pod needs. It is pure: no I/O, no clock, no goroutines, no locks. Its only
// argument is an Input, most of which comes from the runtime, so a restart of the agent loses little.
//
//	wish (desired), view (observe), actions in flight, failures, now
//	        |
//	     Decide --> actions to start, actions to cancel, when to ask again, done
//
// The life of a pod, derived anew from the Input at each call:
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
// A pod that is finished but still wanted keeps its last containers, for their logs. Ended releases the resources that it
// needs only to run. Admit is started again for an End that may be wrong by now.
//
// When the machine goes off, a pod ends as if it were deleted, but it is not removed: after the next boot it runs again.
//
// The runtime carries out all actions but Admit, Update, Ended, Forget, PostStart and PreStop, and shows their effect. The
// effect of Admit is the decision, that of PostStart a mark on the container. Only the worker knows whether the others were
// carried out, so they may be repeated after a restart of the agent.
package plan
