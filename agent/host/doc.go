// Package host contains the packages for the agent's process and its host.
//
// process   a process with limits, locked directories and a log
// hostsettings  settings for the host: cgroups of the agent and of the system
// volatile  overlays in memory for directories on a read-only disk
// sealkey   the commands that bind the key of the database to a TPM
// backups   the commands that back up a node and restore it on another board
// shutdown  ends pods in order when the machine shuts down
package host
