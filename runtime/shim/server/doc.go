// Package server is the shim: a small process that is the parent of the containers of some pods. It
// calls the OCI runtime, writes containers' logs and waits for their end, and continues to do so
// while no agent is running.
//
//	agent --wire--> Server --exec--> crun|runc run --detach (crun read-only: see programs)
//	                  |                  | (exits; the container is now the shim's child)
//	                  |<-- SIGCHLD ------'
//	                  |--> crilog (pipes or a terminal) --> attached clients
//	                  '--> exit.json in the bundle, then an event to the agent
//
// If possible, it runs in a mount namespace of its own that does not have the pods' mounts: see
// Host. Each container has one goroutine (supervise); only the reaper calls wait(2).
package server
