// Package probe runs the startup, liveness and readiness probes of containers and stores their results.
//
//	worker --Poke(uid)--> updateChecks: which probes to run --> queue, by time --> callProbe: a goroutine per call
//	                         ^                                                 |
//	                         +---- handleAnswer: thresholds, verdicts <--------+
//	                                        |          |
//	worker --------Health(pod, seen)--------+          +--> Changed(uid), if Health has changed
//
// One goroutine and one timer serve all checks. Between calls a check takes a few hundred bytes of memory. A
// verdict belongs to one container ID, so a container that is created again has no verdict at first. Verdicts are
// not written to disk. After a restart of the agent, Restore restores them from the pod's last status, which is
// stored whenever it changes. So a ready pod stays ready after the restart until new answers change its verdicts.
// The numbers of consecutive failures of startup and liveness probes are stored in a file on tmpfs. Without this
// file, frequent restarts of the agent could keep a hanging container running.
//
// The packages below it:
//
//	call       makes one call of a probe: HTTP, TCP, gRPC or a command
//	lifecycle  runs the hooks postStart and preStop
package probe
