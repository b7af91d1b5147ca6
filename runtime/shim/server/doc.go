// Package server is the shim: a small process that is the parent of the
// containers of some pods. It calls the OCI runtime, writes their logs, learns
// how they end, and keeps all that while no agent runs.
//
//	agent --wire--> Server --exec--> crun|runc run --detach (crun read-only: see programs)
//	                  |                  | (gone; the container is now our child)
//	                  |<-- SIGCHLD ------'
//	                  |--> crilog (pipes or a terminal) --> attached clients
//	                  '--> exit.json in the bundle, then an event to the agent
//
// Where it can, it lives in a mount namespace of its own, in which the mounts of pods
// are not: see Host. One container runs in one goroutine (supervise); the reaper is the only caller
// of wait(2).
package server
