// Package desired manages the set of pods that this node must run. It merges the pods of all sources, stores them, and reports the UIDs of
// changed pods.
//
//	Directory, URL --Set(full set)--.                        .--> Poke(uid) --> worker
//	socket -----Apply, Delete-------+--> merge --> store ----+
//	worker -----Forget--------------'    (pure)   (durable)  '--> Get, List, Problems
//
// After a start of the agent, the stored pods run at once. They do not end before their source has delivered its pods.
//
// States of a row, which has one UID:
//
//	Set, Apply            missing in Set, Delete               Forget
//	----------> wanted -------------------------> deleting --------------------> gone
//	              ^                                 |  ^ missing again
//	              |                   added again   v  |
//	              '------------ Forget ---------- deleting, again
//
// Only one pod can own a namespace and name. The owner is in the state "wanted" or in the state "deleting, again". A second pod with this
// name is blocked until the name is free, and is reported as a Problem. If a deleting pod has the same name, the wanted pod starts after
// the deleting pod was forgotten.
//
// A pod that has become too large for the node keeps running as it was. The change of such a pod is reported as a Problem. Its deletion
// takes effect.
//
// A change is computed on a copy, committed to the store, and only then published to readers. A node therefore never acts on a change
// that a power cut could revert. Waiting changes are committed in one transaction.
package desired
