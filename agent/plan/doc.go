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
//	(nothing) --RunSandbox--> ready --StartContainer--> inits in order, sidecars among them
//	   ^                        |                              |
//	   |                        | sandbox lost                 v
//	   |                        +--> stop what runs, next   mains, restarted by policy
//	   |                             sandbox attempt           |
//	   |                                                       | all ended, deadline, End, Deleting
//	   |                                                       v
//	   +--RemoveSandbox <-- RemoveContainer <--(Deleting)-- stop mains, then sidecars, then the sandbox
//
// A pod that is finished but still wanted keeps its last containers, for logs.
package plan
