// Package local holds the ConfigMaps, Secrets and PersistentVolumeClaims of this node's manifests:
// from the directory, from the URL, and applied by a person. Each source has its own objects. The
// pods of a source reference the objects of the same source, by namespace and name, and never those
// of the API server. Pods of the API server cannot reference these objects.
//
//	directory, URL --Set--> merge --> store (sealed) --> rows --ConfigMap, Secret, Claim--> pods of that source
//	islet apply --Apply------^                            '--Changed(uid)--> volumes are refreshed, waiting pods retry
//
// Register records the references of a pod, Release removes them; reading never blocks. The stored
// objects are the initial set of every source. As in package object, an object that was removed
// from its manifest remains for the pods that have it, until the last of them is released; other
// pods do not see it.
//
// A claim belongs to one source, the first one, because its name is the name of a directory.
package local
