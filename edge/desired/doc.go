// Package desired holds the set of pods that this node is to run. It merges the sets of the
// sources into the store and reports changes by UID.
//
//	Directory, URL --Set(full set)--.                        .--> Poke(uid) --> worker
//	socket -----Apply, Delete-------+--> merge --> store ----+
//	worker -----Forget--------------'    (pure)   (durable)  '--> Get, List, Problems
//
// The store is not a source. It contains the initial set of every source. Stored pods therefore run before their source has delivered a
// set, and no pod ends before that.
//
// States of a row, which has one UID:
//
//	Set, Apply            missing in Set, Delete               Forget
//	----------> wanted -------------------------> deleting --------------------> gone
//	              ^                                 |  ^ missing again
//	              |                   added again   v  |
//	              '------------ Forget ---------- deleting, again
//
// At most one pod of a namespace and name is wanted, or deleting and wanted again. Another pod with the same name is blocked until the
// name is free, and is reported as a Problem. A pod whose name still belongs to a deleting pod waits until the deleting pod is forgotten.
//
// A change is computed on a copy, committed to the store, and only then published to readers. A node therefore never acts on a change
// that a power cut could revert. Waiting changes are committed in one transaction.
package desired
