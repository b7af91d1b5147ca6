// Package worker runs one goroutine per pod, the worker. It compares the pod's state in the runtime with the
// wanted pod and starts the actions that plan.Decide returns. It sleeps until it is poked, an action ends, or
// the plan's wake-up time is reached.
//
//	desired, observe, probes --Poke(uid)--> Set --> worker (one per UID)
//	                                                  | plan.Decide
//	                                                  v
//	          observe <--Refresh-- Executor.Do (one goroutine per action in flight)
//	                                  hooks, translate, images, cri; Desired.Admit, Forget
//
// A worker works in rounds. In a round it gathers an input, decides, publishes the input together with the actions that
// it is about to start, starts them, and calls Changed(uid). Input(uid) returns the published input, which is immutable.
// Probes, statuses, the shutdown and evictions read this input and do not compute their own.
//
// Pods continue to run when the agent ends. When Run's context ends, actions in flight are cancelled and no others are
// started.
package worker
