// Package provision gives pods of this node's own manifests the storage that they claim: a
// PersistentVolumeClaim of a manifest is bound to a directory below the state directory,
// with its size as the quota where the file system has such.
//
//	<state-dir>/claims/NAMESPACE/NAME
//
//	pod --Prepare--> directory, quota
//	pod's volume --Claim, PersistentVolume--> a local volume at that directory --> agent/volume/storage
//
// A directory is never removed with its pod or with the manifest: what no manifest claims
// any more is listed as unused, and Remove is for a person who says so. The parents of
// these directories are root's alone, so no local user comes at what pods keep there.
//
// Pods of the API server have the claims and volumes of the API; the two never mix.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package provision
