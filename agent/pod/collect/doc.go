// Package collect removes files that pods leave outside their own directory. The planner removes dead containers,
// except one for each container name, and unwanted sandboxes.
//
//	worker (pod is gone) --Release(uid)--> Logs: the pod's log directory
//	agent (all sources have spoken) --Sweep--> Logs: those of unknown pods
//
// Package agent/resource/garbage removes unused images, and dead containers when little disk space is free.
package collect
