// Package node keeps the Node object and its Lease up to date.
//
//	Facts --every nodeStatusUpdateFrequency, Poke--> status --changed, or
//	                                                  nodeStatusReportFrequency passed--> PATCH nodes/status
//	watch of its metadata --changed by others--> GET --> labels, taints, podCIDRs --> store, Changed
//	clock --every quarter of leaseDuration--> PATCH lease
//
// The store contains the last known Node. It is used until the API server has answered, also after a reboot without a network. If the
// Node is deleted while the agent runs, it is created again.
//
// An idle node sends few bytes. The Lease and its renewals contain only the required fields. Answers and the watch contain only metadata
// without managedFields. The watch has no bookmarks. If its version is too old, the watch starts again after one GET. An unchanged status
// is sent only once per nodeStatusReportFrequency.
package node
