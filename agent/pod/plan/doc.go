// Package plan decides what must happen to one pod. It is pure: no I/O, no
// clock, no goroutines, no locks. Everything it knows is in an Input, so a
// restart of the agent loses nothing that the runtime still shows.
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
// A pod that is finished but still wanted keeps its last containers, for logs. What it
// held only in order to run is given back by Ended. An End that may be wrong by now is
// followed by Admit again.
//
// When the machine goes off a pod ends as if it were deleted, but it stays: after the next
// boot it runs again.
//
// All but Admit, Update, Ended, Forget, PostStart and PreStop are carried out by the
// runtime, which shows their effect. Of Admit the verdict is the effect, of PostStart a
// mark on the container; that the others were carried out only the worker knows, so after
// a restart of the agent they may be repeated.
package plan
