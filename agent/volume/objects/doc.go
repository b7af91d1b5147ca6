// Package objects brings what pods use besides themselves to them: before they start, and
// into their volumes when it changes. What a pod sees depends on where it comes from, and
// never both: a pod of the API server has what that has, a pod of a manifest has what
// manifests of the same source have.
//
//	API server --> object.Cache --.
//	manifests ---> local.Objects --+--of(pod)--> volumes, environments, pull secrets
//	                               '--Changed(uid)--> Refresh(pod) --> volumes
//	                                                  Retry(uid) ----> workers
package objects
