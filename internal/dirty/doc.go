// Package dirty holds what changed until somebody comes to look: many changes of one
// thing are one, a writer never waits, and a reader sleeps until there is something.
//
//	Add(x), Add(y), Add(x) --> Wake() --> Take() = x, y
package dirty
