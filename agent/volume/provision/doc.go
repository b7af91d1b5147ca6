// Package provision provides storage for PersistentVolumeClaims in the node's manifests. Each claim
// is bound to a directory below the state directory. The claim's size is the directory's quota if
// the file system supports quotas.
//
//	<state-dir>/claims/NAMESPACE/NAME
//
//	pod --Prepare--> directory, quota
//	pod's volume --Claim, PersistentVolume--> a local volume at that directory --> agent/volume/storage
//
// A directory stays when its pod or manifest is removed. A directory that no manifest claims is
// listed as unused, and a user removes it explicitly through Remove. The parent directories belong
// to root with mode 0700, so local users cannot reach the data.
//
// Pods of the API server use the claims and volumes of the API; the two are never mixed.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package provision
