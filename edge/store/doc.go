// Package store is the only database of a node. It is a SQLite file with all data that the node needs to
// run its pods after a reboot without a network.
//
//	desired, ipam, admission, object ---write--> group --one transaction, one fsync--> islet.db(-wal)
//	status -----------------PutStatus--> newest per pod --every few seconds, no fsync--^
//	                                      readers, on connections of their own <-------'
//
// There are two classes of durability. A durable write is on the disk when its method returns. Writes that arrive while another write waits
// for the disk share the next transaction. A coalesced write, such as the last status of a pod, only sets a value in memory. These values
// are written to the disk every few seconds, and at Close. A power cut may lose them. The node then derives them from the runtime again.
// The release of an address is written at once, but does not wait for the disk.
//
// Writes wear out flash memory. Therefore an unchanged row is not written, and a transaction without changes does not write to a file.
// While nothing changes, the store does no I/O.
//
// If the file is damaged, only the rows on the damaged pages are lost. The other rows are read from the raw pages (package pages) and
// written to a new file, which takes the place of the old one (replacement). If this happens during use, the rows of the small tables come
// from a mirror in memory, and the owners of the other tables write their rows again (AddRewriter). If the disk is read-only, all rows are
// read into a database in memory. If a full disk has no room for a new database, it is in memory until there is room. Health reports these
// cases.
//
// Some owners use a new value even if it cannot be stored. The writer repeats these writes until they succeed (commitRows).
//
// Data of pods that the API server has (ConfigMaps, Secrets, tokens, certificates) is sealed with a key in a separate file. A copy of the
// database alone therefore does not reveal the data.
//
// A board without a real-time clock boots in 1970. Therefore no time in a row is compared with the wall clock, except the times of
// tokens.
package store
