// Package store is the node's only database: a SQLite file with all that the node needs to run
// its pods after a reboot without a network.
//
//	desired, ipam, admission, object ---write--> group --one transaction, one fsync--> islet.db(-wal)
//	status -----------------PutStatus--> newest per pod --every few seconds, no fsync--^
//	                                      readers, on connections of their own <-------'
//
// There are two classes of durability. A durable write is on the disk when its method returns;
// writes that arrive during a flush share the next transaction. A coalesced write (the last
// status of a pod) replaces the newest value in memory. These values are written every few
// seconds and at Close. A power cut may lose them; they are derived from the runtime again.
//
// Flash wears out, so an unchanged row is not written, a transaction without changes touches no
// file, and an idle store does no I/O.
//
// Damage to the file loses only the rows on the damaged pages. The other rows are read from the
// raw pages (package pages) into a new file. If the disk is read-only, all rows are read into a
// database in memory. Health reports both.
//
// Data from the API server for pods (ConfigMaps, Secrets, tokens, certificates) are sealed with a
// key in a separate file, so that a copy of the database alone does not reveal them.
//
// Rows have no wall-clock times that are compared with the clock, except those of tokens, because
// a board without a real-time clock boots in 1970.
package store
