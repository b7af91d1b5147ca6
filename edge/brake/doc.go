// Package brake keeps pods running that a control plane lost, rather than ended. After a
// restore from a backup, in a cluster that was made anew, or when the Node was deleted, the
// API server shows a node without its pods, and a kubelet ends them all at once.
//
//	source.API --Set, Update--> Brake --Judge (pure)--> desired.Set, Update
//	                              |  ^
//	    Node, Service kubernetes -'  '-- history: the epoch
//	    islet accept, a time ----------> the held pods end
//
// Who the control plane is shows in three facts: the UID of the Service default/kubernetes,
// which a node may read and which every API server makes in an empty cluster; the UID of
// the Node; and the epoch of its history. If one of them is another than when the pods were
// last in order, and all pods or at least three and half of them are gone without a
// deletion of their own, the brake holds: they stay wanted, and a person is asked.
//
//	                    most vanish, identity changed
//	known identity -----------------------------------> held --accept, time--> end
//	      ^                                              |
//	      '-- pods are listed again, or identity is right again
//
// A deletion that gives the pod time (deletionTimestamp) is followed at once, as is any
// vanishing while the identity is as before. A forced one counts as vanishing: so does
// garbage collection remove the pods of a Node that was deleted. A list without most pods is then not yet
// believed: some of the missing are asked for by name, as a list may be cut short.
//
// What is held survives the agent and reboots. A hold costs two small
// requests each minute; without one there are two for each list, and none in between.
package brake
