// Package brake keeps pods running that the control plane has lost. After a restore from a backup, in a rebuilt cluster, or after the
// deletion of the Node, the API server has no pods for this node. A kubelet would then end all pods.
//
//	source.API --Set, Update--> Brake --Judge (pure)--> desired.Set, Update
//	                              |  ^
//	    Node, Service kubernetes -'  '-- history: the epoch
//	    islet accept, time limit ------> the pods on hold end
//
// Three facts identify the control plane: the UID of the Service kubernetes, the UID of the Node, and the epoch. A hold begins if a fact
// differs from its value at the last accepted list and most pods disappeared without a graceful deletion. "Most pods" means all running
// pods, or at least three pods if they are at least half of the running pods. Pods on hold keep running until a user decides.
//
//	                    most disappear, identity changed
//	known identity -----------------------------------> hold --accept, time--> end
//	      ^                                              |
//	      '-- pods are listed again, or identity is right again
//
// A node whose configuration has no cluster any more holds all its pods from the start of the agent, until a user decides or the
// configuration has a cluster again.
//
// The brake follows a graceful deletion (a deletionTimestamp with a grace period) immediately. While the identity is unchanged, it
// follows every disappearance. A forced deletion counts as a disappearance, because garbage collection deletes the pods of a deleted Node
// by force. A list that lacks most pods may be truncated, so the brake first reads some of the missing pods by name.
//
// A hold survives restarts of the agent and reboots. During a hold, the brake sends two small requests per minute. Otherwise it sends two
// requests for each full list, and none between lists.
package brake
