// Package desired knows which pods this node is to run. It merges what the
// sources say into the store, and tells by UID what changed.
//
//	Directory, URL --Set(full set)--.                        .--> Poke(uid) --> worker
//	socket -----Apply, Delete-------+--> merge --> store ----+
//	worker -----Forget--------------'    (pure)   (durable)  '--> Get, List, Problems
//
// The store is not one more source: it is every source's initial value. So pods
// run before any source has spoken, and nothing of a source is ended until then.
//
// The life of a row, which has one UID:
//
//	Set, Apply            source drops it, Delete                Forget
//	----------> wanted -------------------------> deleting --------------------> gone
//	              ^                                 |  ^ dropped again
//	              |                   it comes back v  |
//	              '------------ Forget ---------- deleting, again
//
// At most one pod of a namespace and name is wanted, or deleting and wanted again.
// Another one that claims the name is blocked, which is a Problem, until the name
// is free; one that takes the name over from a deleting pod waits for it to be
// forgotten.
//
// A change is computed on a copy, committed to the store, and only then seen by
// readers: a node never acts on what a power cut could take back. Changes that wait for
// one another are committed together.
package desired
