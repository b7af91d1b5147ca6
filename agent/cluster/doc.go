// Package cluster contains the parts of a node that belongs to a control plane: its Node object, the outbox of pod
// statuses, the source of the pods that are bound to the node, the history of the API server, and the brake. The
// brake keeps pods running if an API server with old data no longer lists them. The agent does not wait for any of
// them. It runs the stored pods before the link is up.
//
//	link --client--> node, objects, outbox, events, source
//	node --renewals--> history --rewritten--> source, objects, node
//	source --Set, Update--> brake --> desired ...... worker
//	   '--PodsListed, PodSeen, PodGone--> outbox <--Put, Finish-- pods
//
//	cluster of k3s <--certificates, tunnels--> supervisor
//
// The packages below it:
//
//	setup    a flashed board: islet.yaml on its boot partition
//	sources  the sources of pods except the API server
package cluster
