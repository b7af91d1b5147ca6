// Package brake keeps pods running that the control plane lost. After a restore from a backup,
// in a rebuilt cluster, or when the Node was deleted, the API server shows a node without its
// pods, and a kubelet would end all of them at once.
//
//	source.API --Set, Update--> Brake --Judge (pure)--> desired.Set, Update
//	                              |  ^
//	    Node, Service kubernetes -'  '-- history: the epoch
//	    islet accept, time limit ------> the pods on hold end
//
// Three facts identify the control plane: the UID of the Service default/kubernetes, which a
// node may read and which every API server creates in an empty cluster; the UID of the Node; and
// the epoch of its history. The brake holds if one of them differs from the last accepted list,
// and all pods, or at least three pods that are half of all, disappeared without a graceful
// deletion. Pods on hold stay wanted until a person decides.
//
//	                    most disappear, identity changed
//	known identity -----------------------------------> hold --accept, time--> end
//	      ^                                              |
//	      '-- pods are listed again, or identity is right again
//
// A graceful deletion (a deletionTimestamp with a grace period) is followed at once, and so is
// any disappearance while the identity is unchanged. A forced deletion counts as a
// disappearance, because garbage collection removes the pods of a deleted Node by force. A list
// that lacks most pods may have been cut short, so the brake first reads some of the missing
// pods by name.
//
// The hold survives restarts of the agent and reboots. A hold costs two small requests each
// minute. Without a hold each list costs two, and there are none in between.
package brake
