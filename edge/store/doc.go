// Package store is the node's one database: a SQLite file that holds all a node
// needs to come back after a reboot without any network.
//
//	desired, ipam, admission, object ---write--> group --one transaction, one fsync--> islet.db(-wal)
//	status -----------------PutStatus--> newest per pod --every few seconds, no fsync--^
//	                                      readers, on connections of their own <-------'
//
// There are two classes of durability. A durable write has reached the disk when
// its method returns; writes that arrive while one is being flushed share the next
// transaction. A coalesced write (the last known status of a pod) only replaces
// the newest value in memory, which is written at most every few seconds and at
// Close: what it loses in a power cut can be told again from the runtime.
//
// Flash wears, so an unchanged row is never written, a transaction that changed
// nothing touches no file, and an idle store does no input or output at all.
//
// What breaks the file, at any time, costs the rows that are on the broken pages: the
// others are read from the raw pages (package pages) into a new file. On a disk that takes
// no writes everything is read into memory and goes on there. Health says so.
//
// What comes from the API server for pods (ConfigMaps, Secrets, tokens, certificates) is sealed
// with a key in a file of its own: who copies the database alone learns nothing.
//
// Rows hold no wall-clock time that is compared with the clock, but for that of
// tokens: a board without a real-time clock boots in 1970.
package store
