// Package unitfile reads unit files of systemd, and files that have the same syntax. It only reads files and runs no program. A file
// that cannot be read is treated as absent.
//
//	host's files --> Text (limited) --> Lines --> Read: the command line of a unit, with drop-in files and environment
//	                                         \-> Settings: every key of a file, for units of podman
//	files with variables --> ParseEnvironment: as systemd reads an EnvironmentFile
//	                     \-> ParseShell: as OpenRC, whose scripts are shell scripts that source the files
//
// A file such as /etc/default/islet may have another meaning for systemd than for a shell. The service manager alone decides with which
// flags the agent starts, so no other program reads these files: see doctor.ServiceFlags.
package unitfile
