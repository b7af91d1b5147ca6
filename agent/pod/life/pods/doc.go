// Package pods keeps the node's decisions about the wanted pods, and their statuses. It implements worker.Desired for the
// workers and server.Config.Pods for the kubelet's server, and it sends statuses to the outbox.
//
//	desired --Get, List--> Pods <--Changed(uid)-- workers
//	                        | ^
//	              verdicts  | '--Admit(uid), Get(uid), Forget(uid)-- workers
//	              statuses  |
//	                        v
//	                store, outbox, server
//
// Admit, an action of the plan, decides about a pod. Get returns the decision, which is called the verdict. A refusal is
// stored before it takes effect. An admission is not stored. After a restart of the agent, a pod counts as admitted if it
// has containers in the runtime and no stored refusal. FindRejections answers for pods of a dry run, and decides nothing.
//
// A refused pod of the API server stays Failed, and its controller replaces it. A refused pod of another source has no
// controller. Its refusal is reconsidered when a pod has ended or the node has changed.
package pods
