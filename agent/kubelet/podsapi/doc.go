// Package podsapi serves a kubelet's pods API (v1alpha1.Pods), which programs on the machine use to list, read and watch
// the pods of this node without the API server.
//
//	program --<root-dir>/pods-api/pods-api.sock--> ListPods, GetPod, WatchPods
//	                                                    '--> Pods: ChangedSince(version), Find(uid), Changed()
//
// Until the first connection, the server consists of a socket and a goroutine. A watcher has no queue: when a pod changes,
// it sends the newest state of every pod that has changed since the last time. A slow watcher therefore skips states of a
// pod, but never a pod. A watcher that does not read is ended.
// https://github.com/kubernetes/enhancements/issues/4188
package podsapi
