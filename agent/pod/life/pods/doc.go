// Package pods is the pods of the node: the wanted pods, the node's decisions about them and their statuses. It is the
// Desired of the workers and the Pods of the server, and it sends statuses to the outbox.
//
//	desired --Get, List--> Pods <--Changed(uid)-- workers
//	                        | ^
//	              verdicts  | '--Admit(uid), Get(uid), Forget(uid)-- workers
//	              statuses  |
//	                        v
//	                store, outbox, server
//
// Admit, an action of the plan, decides about a pod, and Get returns the decision, the verdict. It counts once it is
// stored: a refusal as a row, an admission by the pod's containers in the runtime. A refusal of a pod that is not from
// the API server is reconsidered when a pod has ended or the node has changed, since no controller would replace
// the pod.
package pods
