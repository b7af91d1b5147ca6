// Package node keeps the Node object and its Lease up to date.
//
//	Facts --every nodeStatusUpdateFrequency, Poke--> status --changed, or
//	                                                  nodeStatusReportFrequency passed--> PATCH nodes/status
//	watch of its metadata --changed by others--> GET --> labels, taints, podCIDRs --> store, Changed
//	clock --every quarter of leaseDuration--> PATCH lease
//
// The store has the last Node, which is used before the API server has answered, and after a reboot
// without a network. If the Node is deleted while the agent runs, it is created again.
//
// An idle node sends few bytes: the Lease and its renewals have only the required fields, answers
// and the watch contain metadata only, without managedFields. The watch has no bookmarks; when its
// version is too old, it starts again after one GET. An unchanged status is sent every five minutes
// only.
package node
