// Package history detects that the API server lost history that this node has already seen. A
// control plane that was restored from a backup continues from an older state. A watch that
// continues from a newer version then receives no events, and no error reports it.
// https://github.com/kubernetes/kubernetes/issues/131115
//
//	lease room --Renewed, Doubt--> History --Rewritten--> source.API   list anew
//	source.API --Settle, Resume-->    |                   object.Cache list anew
//	                                  |                   outbox       forget what was acknowledged
//	             store <--marker------'                   node         read anew
//	               (with pods, and after them)
//
// Only this node writes its Lease, so the Lease marks the node's own position in the history of
// the cluster. If the server's Lease has a lower version or an older renewal than the server
// acknowledged, or does not exist, the server has another history. Each renewal returns the
// version, so the comparison costs no request. After a start or a closed connection the Lease is
// read before it is renewed, because a renewal overwrites the evidence. A backup may be newer
// than the last renewal: before a watch of pods continues, the server is also asked for its
// current version.
//
// The epoch counts the histories. The epoch, the last renewal and the newest version of a pod
// are the marker, which is stored: in each transaction that stores pods, and with the first
// renewal after that. So stored pods are never newer than the marker, and an agent that starts
// later still detects a backup that lacks one of them.
// Two cases are not detected: an agent that was killed before that renewal, and a restored
// cluster that has since written more than it had lost.
package history
