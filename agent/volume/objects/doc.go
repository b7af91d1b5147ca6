// Package objects provides the API objects that a pod refers to: before the pod starts, and in its volumes whenever
// they change. The two sources are never mixed. A pod from the API server gets objects from the API server. A pod
// from a manifest gets objects from manifests of the same source.
//
//	API server --> object.Cache --.
//	manifests ---> local.Objects --+--sourceOf(pod)--> volumes, environments, pull secrets
//	                               '--Changed(uid)--> Refresh(pod) --> volumes
//	                                                  Retry(uid) ----> workers
package objects
