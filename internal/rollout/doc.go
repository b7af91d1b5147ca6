// Package rollout brings a version of islet to many nodes in rings. It has the signed index, the decision of a node, and the count of the
// office. It has no side effects.
//
//	the office:  Plan --New--> Index --Sign--> INDEX, on a server
//	                             ^
//	                             | Advance: open the next ring, or pause
//	             Report of each node --Count--> Tally of each ring
//
//	each node:   INDEX --Parse, Verify--> Index --Decide(node, record, time)--> a Decision: the state, the ring, and until when it waits
//
// The index is a text of package signed:
//
//	islet rollout 1
//	signed: 2026-11-28T19:00:00Z
//	expires: 2026-12-12T19:00:00Z
//	plan: {"version":"0.3.0","archives":[...],"rings":[...]}
//	---
//	4f2a9c0d11e28b77 kZ0L...
//
// The plan is JSON in one spelling: Parse rejects a text that New would not write. The signed time only grows: a node takes nothing from an
// index that is older than the newest one that it has seen. An index has a time after which nodes take nothing from it, so a
// server can delay a pause only until then. The number of failures of a ring only grows, too.
package rollout
