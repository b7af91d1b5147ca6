// Package objects provides the API objects that a pod refers to: before the pod starts, and in its
// volumes whenever they change. The source depends on the pod and is never mixed: a pod of the API
// server sees objects of the API, a pod of a manifest sees objects from manifests of the same
// source.
//
//	API server --> object.Cache --.
//	manifests ---> local.Objects --+--sourceOf(pod)--> volumes, environments, pull secrets
//	                               '--Changed(uid)--> Refresh(pod) --> volumes
//	                                                  Retry(uid) ----> workers
package objects
