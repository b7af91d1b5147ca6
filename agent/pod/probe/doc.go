// Package probe runs the startup, liveness and readiness probes of containers, and keeps their results.
//
//	worker --Poke(uid)--> follow: which probes to run --> queue, by time --> ask: a goroutine per call in flight
//	                         ^                                                 |
//	                         +---- keep: thresholds, verdicts <----------------+
//	                                        |          |
//	worker --------Health(pod, seen)--------+          +--> Changed(uid), if Health has changed
//
// One goroutine and one timer serve all checks. A check takes a few hundred bytes between two calls. A verdict is about one
// container ID: the next attempt of the container has none yet. Verdicts are not written to disk. Recall takes over the
// results of an earlier run of the agent from the pod's last status, which is stored whenever it changes: a pod keeps its
// readiness until enough answers change it. A file in memory has how often startup and liveness probes failed in a row, so
// that restarts of the agent do not keep a container that hangs alive.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes
package probe
