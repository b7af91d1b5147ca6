// Package objects provides the API objects to which a pod refers. It provides them before the pod starts, and updates
// the pod's volumes whenever these objects change. There are two sources of objects, and each pod uses only one of
// them. A pod from the API server gets objects only from the API server. A pod from a manifest gets objects only from
// manifests of the same source.
//
//	API server --> object.Cache --.
//	manifests ---> local.Objects --+--sourceOf(pod)--> volumes, environments, pull secrets
//	                               '--MarkOutdated(uid)--> Refresh(pod) --> volumes
//	                                                  Retry(uid) ----> workers
package objects
