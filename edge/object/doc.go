// Package object reads and caches the API objects that pods reference: ConfigMaps, Secrets,
// Services for the environment, claims and volumes, and service account tokens.
//
//	pod --Prepare--> references --> item, one per object --list, watch--> API server
//	                                  |        ^
//	        Changed(UID) <--publish---|        | Load: the initial value
//	                                  v        |
//	ConfigMap, Secret, Services <-- memory <-- store (sealed) --> tokens --Token-->
//
// It is a hook in a pod's life. Prepare requests all objects that the pod references at the same
// time, and waits until each request has ended once; after that, reading never blocks. Objects
// that are in the store are not waited for: with or without a link, a pod that ran here before
// starts with the objects it had. Release forgets objects that no other pod uses.
//
// Each object has one item, which many pods share. Each item has one goroutine, which lists the
// object by name, as node authorization demands, and then watches it. An idle watch causes no
// traffic. That an object does not exist is an answer like any other: it is stored for the pods
// for which the object is optional. A failed request is not an answer. An object is stored before
// it is used.
//
// A node may only get PersistentVolumeClaims and PersistentVolumes, and only those of its pods.
// They are read by name when a pod needs them, again when a pod starts and they are not ready for
// it, and otherwise rarely. A claim references a volume, and the volume references other objects;
// the pods of the claim use those too.
//
// Each token has a key made of the pod and the request. One goroutine refreshes the tokens before
// they expire. An expired token is used if there is no newer one. Tokens are removed with their
// pod.
package object
