// Package history detects that the API server has lost changes that this node has already seen. After a restore from a backup, a control
// plane continues from an older state. A watch that continues from a newer version then receives no events and no error
// (https://github.com/kubernetes/kubernetes/issues/131115).
//
//	node lease --RecordRenewal, SuspectServer--> History --WatchEpoch--> source.API    lists the pods again
//	source.API --VerifyServer, Resume----------> |                      object.Cache  lists the objects again
//	                                             |                      node          reads the Node again
//	            store <--marker------------------'
//	              (with pods, and after them)
//
// Only this node writes its Lease. So the Lease marks this node's position in the history of the cluster. The server has another history in
// three cases: it has no Lease of this node; the version of the Lease is lower than the version that the server has acknowledged; the
// renewal time in the Lease is earlier than the acknowledged one. Each renewal returns the version, so the comparison needs no request.
// After a start or a closed connection, the Lease is read before it is renewed, because a renewal overwrites the evidence. A backup that is
// newer than the last renewal does not show in the Lease. So the package also requests the server's current version before a watch of pods
// continues.
//
// The node counts the histories that it has seen. The epoch is the number of the current history. The marker consists of the epoch, the
// last renewal and the newest version of a pod. It is stored in each transaction that stores pods, and with the first renewal after such a
// transaction. A renewal does not wait for the disk; Run stores the marker after it. Stored pods are therefore never newer than the marker.
// At its next start, the agent still detects a backup that lacks one of them. A lost change is not detected in two cases: the agent was
// killed before that renewal; the restored cluster has already written more changes than it had lost.
package history
