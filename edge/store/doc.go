// Package store is the only database of a node. It is a SQLite file with all data that the node needs to
// run its pods after a reboot without a network.
//
//	desired, ipam, admission, object ---write--> group --one transaction, one fsync--> islet.db(-wal)
//	status -----------------PutStatus--> newest per pod --every few seconds, no fsync--^
//	                                      readers, on connections of their own <-------'
//
// There are two classes of durability. A durable write is on the disk when its method returns. Writes that
// arrive while another one waits for the disk share the next transaction. A coalesced write, such as the
// last status of a pod, only replaces the pending value in memory. The pending values are written every few
// seconds, and at Close. A power cut may lose them. The node then derives them from the runtime again.
//
// Writes wear out flash memory. So an unchanged row is not written, a transaction without changes touches
// no file, and an idle store does no I/O.
//
// If the file is damaged, only the rows on the damaged pages are lost. The other rows are read from the raw
// pages (package pages) into a new file. If the disk is read-only, all rows are read into a database in
// memory. Health reports both.
//
// Data that the API server has for pods (ConfigMaps, Secrets, tokens, certificates) are sealed with a key
// in a separate file. So a copy of the database alone does not reveal them.
//
// A board without a real-time clock boots in 1970. So no time in a row is compared with the wall clock,
// except the times of tokens.
package store
