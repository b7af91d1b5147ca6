// Package unitfile reads unit files of systemd, and files that have the same syntax. It only reads files and runs no program. A file
// that cannot be read is treated as absent.
//
//	host's files --> Text (limited) --> Lines --> Read: the command line of a unit, with drop-in files and environment
//	                                         \-> Settings: every key of a file, for units of podman
package unitfile
