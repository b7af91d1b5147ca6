// Package server is the shim: a small process that is the parent of the containers of some pods. It
// calls the OCI runtime, writes the containers' logs and waits for the end of containers. It also
// does so while no agent is running.
//
//	agent --wire--> Server --exec--> crun|runc run --detach (crun read-only: see programs)
//	                  |                  | (exits; the container is now the shim's child)
//	                  |<-- SIGCHLD ------'
//	                  |--> crilog (pipes or a terminal) --> attached clients
//	                  '--> exit.json in the bundle, then an event to the agent
//
// If possible, it runs in a mount namespace of its own that does not contain the pods' mounts; see
// Host. There is one goroutine (supervise) for each container. Only the reaper calls wait(2).
package server
