// Package collect removes files that pods leave outside their own directory. The planner removes unwanted sandboxes and
// dead containers. It keeps one dead container for each container name.
//
//	worker (pod is gone) --Release(uid)--> Logs --grace time--> the pod's log directory and the links to its logs
//	agent (all sources have listed their pods) --Sweep--> Logs: the log directories of unknown pods
//	garbage (little disk space is free) --Flush--> Logs: all that wait for the end of their grace time
//
// Package agent/resource/garbage removes unused images, and dead containers when little disk space is free.
package collect
