// Package provision provides storage for PersistentVolumeClaims that are defined in the node's manifests. Each claim
// is bound to a directory below the state directory. If the file system supports quotas, the size that the claim
// requests is the quota of its directory.
//
//	<state-dir>/claims/NAMESPACE/NAME
//	<state-dir>/claims/NAMESPACE/~removed-RANDOM    while Remove deletes it
//
//	pod --Prepare--> directory, quota
//	pod's volume --Claim, PersistentVolume--> a local volume at that directory --> agent/volume/storage
//
// A directory is not removed with its pod or manifest. When no manifest contains the claim any more, the directory is
// listed as unused, and a user can remove it with Remove. The parent directories belong to root with mode 0700, so
// local users cannot reach the data.
//
// Pods from the API server only use claims and volumes from the API server.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package provision
