// Package durable writes files that a loss of power leaves whole: the old one or the new one is
// there. A file is on the disk before it has its name, and the name before anybody relies on it
// (fsync(2): the entry of a directory needs a sync of its own).
//
// Paths are root's: nobody else may write where they lead.
package durable
