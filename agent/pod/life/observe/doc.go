// Package observe keeps a view of each pod: its last known state in the container runtime. Events of the runtime, or
// a relist where it has none, name the pods that changed, and only these are read again.
//
//	cri.Events --uid--> dirty --refresh--> cache --uid--> changed(uid)
//	relist (slow) --uids that differ--^      ^
//	worker, after its own action: Refresh ---+   (so that it never acts on a stale view)
//
// A view is immutable: it is replaced, never changed.
package observe
