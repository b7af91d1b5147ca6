// Package podsapi serves a kubelet's pods API (v1alpha1.Pods), which programs on the machine use to list, read and watch
// the pods of this node without the API server.
//
//	program --<root-dir>/pods-api/pods-api.sock--> ListPods, GetPod, WatchPods
//	                                                    '--> Pods: ChangedSince(version), Find(uid), Changed()
//
// Until the first connection, the server consists of a socket and a goroutine. There is no queue for a watcher. When a pod
// changes, the server sends the newest state of every pod that has changed since it last sent states to this watcher. A
// slow watcher therefore misses states of a pod, but never a pod. The server ends the call of a watcher that does not
// read.
// https://github.com/kubernetes/enhancements/issues/4188
package podsapi
