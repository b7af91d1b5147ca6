// Package pods serves the paths of the local socket about pods and the objects that pods use.
//
//	islet apply, delete --manifest--> Decode --> Objects, then Local (edge/desired)
//	islet wait, pods ----GET--------> watch: all pods, then each change
//	islet describe, top -GET--------> details, origins, processes
//	islet restart, debug -POST------> Restart, Local.AddEphemeral
//	islet cp ------------tar--------> files --> agent/kubelet/containerfiles: root directory of the container
//
// Only pods of the local source can be deleted here. Manifests of other sources have to be changed at their source.
package pods
