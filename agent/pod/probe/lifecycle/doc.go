// Package lifecycle runs the hooks of containers, postStart and preStop, and remembers
// in which containers the postStart hook has returned.
//
//	worker --Run(hook)--> call.Caller --> the container, the pod's address
//	   '-----Returned(id)--> Dir/ID, while the container is there
//	plan.Input <--Has(id)------'
//
// Dir is in memory, as are containers that run: it outlives the agent, not the machine. A
// container is marked only after its hook has returned, so an agent that dies in between
// runs the hook once more: hooks are delivered at least once. A kubelet that is restarted
// leaves such a hook half done.
// https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/
package lifecycle
