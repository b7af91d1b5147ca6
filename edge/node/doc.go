// Package node keeps the Node object and its Lease as this machine is.
//
//	Facts --every nodeStatusUpdateFrequency, Poke--> status --differs, or
//	                                                  nodeStatusReportFrequency passed--> PATCH nodes/status
//	watch of its metadata --others wrote--> GET --> labels, taints, podCIDRs --> store, Changed
//	clock --every quarter of leaseDuration--> PATCH lease
//
// The store has the last Node: it is what the program knows before the API server has
// answered, and over a reboot without network. A Node that is deleted under the agent
// is made again.
//
// Bytes are a budget of an idle node: the lease and its renewals say no more than they
// must, answers and the watch bring metadata only, and of that no record of who wrote
// which field; the watch has no bookmarks (it begins anew with one GET when it lost its
// place), and a status that did not change is told every five minutes only.
package node
