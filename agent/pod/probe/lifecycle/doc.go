// Package lifecycle runs the postStart and preStop hooks of containers and records for which containers the postStart
// hook has returned. It also records which containers the node stopped although their pods were not over.
//
//	worker --Run(hook)--> call.Caller --> the container, the pod's address
//	   |-----MarkReturned(id)--> Dir/ID, while the container is there
//	   |                           |
//	plan.Input <--HasReturned(id)--'
//	   |
//	   |-----MarkInterrupted(id)--> State/interrupted/KIND.ID, before the container is stopped; while the container is there
//	   |                              |
//	plan.Input <--Interruption(id)----'
//
// Dir is on tmpfs: like running containers, it survives the end of the agent but not a reboot. A container is
// marked only after its hook has returned. If the agent ends before that, the hook runs again, so each hook
// runs at least once. A kubelet does not repeat a hook after a restart. State survives a reboot, because a reboot interrupts containers.
package lifecycle
