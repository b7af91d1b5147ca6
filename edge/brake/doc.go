// Package brake keeps pods running that the control plane has lost. After a restore from a backup, in a
// rebuilt cluster, or after the Node was deleted, the API server has a Node without its pods. A kubelet
// would end all pods at once.
//
//	source.API --Set, Update--> Brake --Judge (pure)--> desired.Set, Update
//	                              |  ^
//	    Node, Service kubernetes -'  '-- history: the epoch
//	    islet accept, time limit ------> the pods on hold end
//
// Three facts identify the control plane: A hold begins if one of these facts differs from its value at the
// last accepted list, and most pods disappeared without a graceful deletion: all of them, or at least three
// that are half of them. Pods on hold keep running until a person decides.
//
//	                    most disappear, identity changed
//	known identity -----------------------------------> hold --accept, time--> end
//	      ^                                              |
//	      '-- pods are listed again, or identity is right again
//
// The brake follows a graceful deletion (a deletionTimestamp with a grace period) at once. While the
// identity is unchanged, it follows any disappearance. A forced deletion counts as a disappearance, because
// garbage collection removes the pods of a deleted Node by force. A list that lacks most pods may have been
// cut short. So the brake first reads some of the missing pods by name.
//
// The hold survives restarts of the agent and reboots. During a hold the brake sends two small requests
// each minute. Otherwise it sends two requests for each full list, and none between lists.
package brake
