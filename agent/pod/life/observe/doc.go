// Package observe keeps a view of each pod: its last known state in the container runtime. After an event of
// the runtime, only the pod of the event is read again. A runtime without events is listed periodically
// instead.
//
//	cri.Events --uid--> dirty --refresh--> cache --uid--> changed(uid)
//	relist (slow) --uids that differ--^      ^
//	worker, after its own action: Refresh ---+   (so that it never acts on a stale view)
//
// While the worker has an action in progress, an event about its pod waits for this Refresh, but not longer than eventDelay. So the agent
// does not read its own changes twice, and a container that ends meanwhile is noticed.
//
// A view is immutable. When the pod changes, a new view replaces it.
package observe
