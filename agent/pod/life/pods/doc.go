// Package pods joins what is wanted of the pods, what the node decided about them and
// what they are. To the workers it is the Desired, to the server the Pods, and to the
// outbox it says what is known here.
//
//	desired --Get, List--> Pods <--Changed(uid)-- workers
//	                        | ^
//	              verdicts  | '--Admit(uid), Get(uid), Forget(uid)-- workers
//	              statuses  |
//	                        v
//	                store, outbox, server
//
// A verdict on a pod is made by Admit, which is an action of the plan, and read by Get.
// It counts when it is stored: a refusal as a row, an admission by what runs. Refusals
// of pods that are not the API server's are reconsidered when a pod ended, or the node
// is another than it was: nobody else would bring them back.
package pods
