// Package collect removes what pods leave behind outside their own directory.
// The planner removes dead containers beyond the one that is kept and the
// sandboxes of pods that nobody wants; what is left for this package is files.
//
//	worker (pod is gone) --Release(uid)--> Logs: the pod's log directory
//	agent (all sources have spoken) --Sweep--> Logs: those of unknown pods
//
// Images that nobody uses, and dead containers when the disk fills up, are agent/resource/garbage's.
package collect
