// Package lifecycle runs the postStart and preStop hooks of containers and records for which containers the postStart
// hook has returned.
//
//	worker --Run(hook)--> call.Caller --> the container, the pod's address
//	   '-----Returned(id)--> Dir/ID, while the container is there
//	plan.Input <--Has(id)------'
//
// Dir is on tmpfs: like running containers it outlives the agent, but not a reboot. A container is marked only after
// its hook has returned. If the agent dies before that, the hook runs again: hooks are delivered at least once. A
// restarted kubelet leaves such a hook unfinished.
package lifecycle
