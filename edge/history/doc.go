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
// Only this node writes its Lease. So the Lease marks this node's position in the history of the cluster. The server has another history
// if it has no Lease of this node, or a Lease with a lower version or an older renewal than the server has acknowledged. Each renewal
// returns the version, so the comparison needs no request. After a start or a closed connection, the Lease is read before it is renewed,
// because a renewal overwrites the evidence. A backup that is newer than the last renewal does not show in the Lease. So the package also
// requests the server's current version before a watch of pods continues.
//
// The node counts the histories that it has seen. The epoch is the number of the current history. The marker consists of the epoch, the
// last renewal and the newest version of a pod. It is stored in each transaction that stores pods, and with the first renewal after such
// a transaction. Stored pods are therefore never newer than the marker, and an agent that starts later still detects a backup that lacks
// one of them. Two cases are not detected: an agent that was killed before that renewal, and a restored cluster that has since written
// more than it had lost.
package history
