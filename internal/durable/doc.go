// Package durable writes files so that after a power loss either the complete old file or the
// complete new file exists. The data is synced before the file is renamed into place, and the
// directory is synced before Write returns, because fsync(2) of a file does not cover its directory
// entry.
//
// The directories of the paths must be writable by root only.
package durable
