// Package worker keeps one goroutine per pod that brings what runs to what is
// wanted. It sleeps until it is poked, an action ends, or the plan asks to be
// called again.
//
//	desired, observe, probes --Poke(uid)--> Set --> worker (one per UID)
//	                                                  | plan.Decide
//	                                                  v
//	          observe <--Refresh-- Executor.Do (one goroutine per action in flight)
//	                                  hooks, translate, images, cri; Desired.Admit, Forget
//
// A worker works in rounds: it gathers an input, decides, publishes the input with the actions that it is about
// to start, starts them, and calls Changed(uid). Input(uid) returns the published input, which is never changed:
// probes, statuses, the shutdown and evictions read it, and none computes its own. The end of the agent is not
// the end of its pods: when Run's context ends, actions in flight are cancelled and everything stays as it is.
package worker
