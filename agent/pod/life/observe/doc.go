// Package observe keeps what the runtime last said of each pod. It learns of
// changes from the runtime's events, or where there are none from a relist, and
// reads anew only the pod that changed.
//
//	cri.Events --uid--> dirty --refresh--> cache --uid--> changed(uid)
//	relist (slow) --uids that differ--^      ^
//	worker, after its own action: Refresh ---+   (so that it never acts on a stale view)
//
// A view is immutable: it is replaced, never changed.
package observe
