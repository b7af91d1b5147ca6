// Package local has the ConfigMaps, Secrets and PersistentVolumeClaims of this node's own
// manifests: of the directory, of the URL, and of what a person applied. Each of these
// sources has its own; pods of a source use those of the same source, by namespace and
// name, and never what the API server has. Pods of the API server never see these.
//
//	directory, URL --Set--> merge --> store (sealed) --> rows --ConfigMap, Secret, Claim--> pods of that source
//	islet apply --Apply------^                            '--Changed(uid)--> volumes are refreshed, waiting pods try again
//
// Register notes what a pod names, Release forgets it; reading never waits. What
// the store has is every source's initial value. An object that is removed from its
// manifest stays for the pods that have it, as with the API server's (package object), and
// goes with the last of them; for others it does not exist.
//
// A claim belongs to one source alone, the first one: it names a directory of the node.
package local
