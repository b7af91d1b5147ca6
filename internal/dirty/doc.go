// Package dirty collects the keys of changed objects for a reader. Several changes of one object
// result in one key in the set. A writer never blocks, and the reader sleeps while the set is
// empty.
//
//	Add(x), Add(y), Add(x) --> Wake() --> TakeAll() = x, y
package dirty
