// Package probe asks the containers of pods, again and again, whether they have started,
// live and are ready, and keeps what follows from the answers.
//
//	worker --Poke(uid)--> follow: what is to be asked --> queue, by time --> ask: a goroutine per call in flight
//	                         ^                                                 |
//	                         +---- keep: thresholds, verdicts <----------------+
//	                                        |          |
//	worker, status --Health(pod, seen)------+          +--> Changed(uid), if Health is another now
//
// One goroutine and one timer serve all checks; between two calls a check is a few
// hundred bytes. A verdict is on one container, by its ID: the next attempt begins
// without. Nothing is written to disk for it. What an earlier run of the agent found out is
// in the last status of the pod, which is stored whenever it changes, and Recall takes it over:
// a pod that was ready stays ready, and one that was not stays so, until enough answers say
// otherwise. How often a container has failed that is about to be given up is in a file in memory.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes
package probe
