// Package observe keeps a view of each pod: its last known state in the container runtime. After an event of
// the runtime, only the pod of the event is read again. A runtime without events is listed periodically
// instead.
//
//	cri.Events --uid--> dirty --refresh--> cache --uid--> changed(uid)
//	relist (slow) --uids that differ--^      ^
//	worker, after its own action: Refresh ---+   (so that it never acts on a stale view)
//
// A view is immutable. When the pod changes, a new view replaces it.
package observe
