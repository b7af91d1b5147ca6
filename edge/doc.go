// Package edge contains no code. The packages below it store what the node knows, and connect the node to its API server. The link may fail
// at any time. Only edge may import client-go and SQLite.
//
// Pods and their objects:
//
//	source          reads the pods of this node
//	manifest        decodes a manifest
//	desired         the set of pods that this node must run
//	local           ConfigMaps, Secrets and claims of manifests
//	object          API objects that pods refer to
//	podcertificate  certificates for pods
//	check           finds problems of manifests and configurations
//	inventory       lists what manifests define and need
//
// The API server:
//
//	link           credentials, proven time and the state of the link
//	kube           the client
//	node           the Node and its Lease
//	outbox         statuses, mirror pods and events
//	patch          strategic merge patches
//	configsource   follows the ConfigMap with a configuration
//	csinode        the CSINode
//	resourceslice  deletes ResourceSlices of drivers that are gone
//	review         authenticates and authorizes clients of the node
//	history        detects an API server with old data
//	brake          keeps pods that such an API server has lost
//	twin           detects another machine with the name of this node
//	supervisor     certificates and tunnels of a node in a cluster of k3s
//	remotedialer   the protocol of such a tunnel
//	apitest        an API server for tests
//
// The disk:
//
//	store    the database
//	keyfile  the key that encrypts confidential rows
package edge
