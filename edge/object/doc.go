// Package object has what pods use of the API besides themselves: ConfigMaps,
// Secrets, Services for their environment, and service account tokens.
//
//	pod --Prepare--> references --> item, one per object --list, watch--> API server
//	                                  |        ^
//	        Changed(UID) <--publish---|        | Load: the initial value
//	                                  v        |
//	ConfigMap, Secret, Services <-- memory <-- store (sealed) --> tokens --Token-->
//
// It is a hook in a pod's life. Prepare waits until everything that the pod names was
// asked for once, all of it at the same time; after that reading never waits. What is
// in the store already is not waited for: with a link or without, a pod that ran here
// before starts with what it had. Release forgets what no other pod uses.
//
// Each object has one item, which many pods share, and each item one goroutine that
// lists the object by name, as node authorization demands, and then watches it. An
// idle watch costs nothing on the wire. That an object does not exist is an answer
// like any other, kept in the store for those to whom it is optional; that the server
// cannot be reached is none. Nothing is used that is not in the store first.
//
// A node may only get PersistentVolumeClaims and PersistentVolumes, and those of its
// pods: they are read by name when a pod needs them, when one starts and they are not
// what it waits for, and else seldom. A claim names a volume, which names what it needs in
// turn: each is taken up for the pods of the one that names it.
//
// Tokens are kept under what the pod asked for, refreshed in good time by one
// goroutine, served stale rather than not at all, and forgotten only with their pod.
package object
