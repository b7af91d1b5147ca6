// Package history tells whether the API server still has the history that this node has
// seen. A control plane that was restored from a backup continues from an older state: a
// watch that goes on from a newer version hears nothing, for ever, and no error says so.
// https://github.com/kubernetes/kubernetes/issues/131115
//
//	lease room --Renewed, Doubt--> History --Rewritten--> source.API   list anew
//	source.API --Settle, Resume-->    |                   object.Cache list anew
//	                                  |                   outbox       forget what was acknowledged
//	             store <--marker------'                   node         read anew
//	               (with pods, and after them)
//
// The node's Lease is its own entry in the history of the cluster: nobody else writes it.
// If the Lease of the server has a lower version than one that was acknowledged, or an
// older renewal, or is not there at all, then the history that the node knows is not the
// server's. Each renewal brings the version back, so that this costs nothing on the wire;
// only where there is doubt (after a start, after a connection that ended) the Lease is
// read before it is renewed, since a renewal overwrites the evidence. A backup may be
// younger than the last renewal: before a watch of pods goes on, the server is asked for
// its version of now as well.
//
// The epoch counts the histories. It, the last renewal and the newest version of a pod that was
// seen are the marker, which survives the agent: it is written in the transaction that stores
// pods, and with the first renewal after that. So the pods of the store are never newer than
// the marker, and a backup that lacks one of them is found also by an agent that starts anew.
// What it cannot find: an agent that was killed before that renewal, and a restored cluster that
// has written more since than it had lost.
package history
