// Package server implements the shim, a small process that is the parent of the containers of some
// pods. It calls the OCI runtime, writes the logs of the containers, and records their exits. It
// does not depend on a running agent.
//
//	agent --wire--> Server --exec--> crun|runc run --detach (crun read-only: see openedPrograms)
//	                  |                  | (exits; the container is now the shim's child)
//	                  |<-- SIGCHLD ------'
//	                  |--> crilog (pipes or a terminal) --> attached clients
//	                  |--> exit.json in the bundle, then an event to the agent
//	                  '--> delete: removes the cgroup and crun's state (see deleteState), or crun|runc delete
//
// The OCI runtime and a volume may wait in the kernel for a disk or a server without end. The shim holds no lock meanwhile, and each wait
// has a limit: see runContainer, listContainers and volumeCalls.
//
// If possible, the shim runs in its own mount namespace, which does not contain the mounts of pods;
// see Host. Each container has one goroutine (waitForEnd). Only the reaper calls wait(2).
package server
