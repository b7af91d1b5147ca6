// Package object reads and caches the API objects that pods reference. The objects are ConfigMaps, Secrets,
// Services for the environment, claims, volumes, and service account tokens.
//
//	pod --Prepare--> references --> item, one per object --list, watch--> API server
//	                                  |        ^
//	        Changed(UID) <--publish---|        | Load: the initial value
//	                                  v        |
//	ConfigMap, Secret, Services <-- memory <-- store (sealed) --> tokens --Token-->
//
// The package implements a hook in the life of a pod. Prepare requests all objects that the pod references, at the same time. It waits
// until each object has been requested once, with or without success. After that, the methods that return objects never block. Prepare does
// not wait for objects that are in the store. A pod that ran here before therefore starts with its stored objects, even without a link.
// Release removes the objects that no other pod uses. Fetch is for a pod that cannot start yet.
//
// Each object has one item, which many pods can share. Each item has one goroutine. It lists the object by name, because the node
// authorizer requires that, and then watches it. An idle watch causes no traffic. The answer that an object does not exist is stored like
// any other answer, because pods for which the object is optional need it. A failed request is not an answer. A changed object is stored
// before pods see it.
//
// A node may only get PersistentVolumeClaims and PersistentVolumes, and only for its pods. They are read by name when a pod needs
// them. If a claim or volume is not ready for a starting pod, it is read again. Otherwise it is read rarely. If a claim is already known
// when a pod comes to this node, the pod waits until the claim was read again, because it may have another volume now. Without a link, the
// pod uses the known claim. A claim references a volume, and the volume references other objects. The pods of the claim use these objects,
// too.
//
// The key of a token consists of the pod and the parameters of the request. One goroutine refreshes the tokens before they expire. An
// expired token is used until the API server issues a new one. Tokens are removed together with their pod.
package object
