// Package cluster is what a node that belongs to a control plane has besides: its Node
// object, the outbox of its pods' statuses, the source of the pods that are bound to it,
// the history of the API server that it talks to, and the brake that holds pods when that
// lies. None of it is waited for: pods run from the store before the link is up.
//
//	link --client--> node, objects, outbox, events, source
//	node --renewals--> history --rewritten--> source, objects, node
//	source --Set, Update--> brake --> desired ...... worker
//	   '--Listed, Seen, Gone--> outbox <--Put, Finish-- pods
package cluster
